// drawChart draws a chart into an element with uPlot, and returns uPlot's object. A new width of the element or new
// colours of the page redraw the chart until destroy() of that object. The legend shows the values at the pointer.
// type Chart in chart.go describes a chart. The page defines the colours --muted, --grid, and --series-0 to --series-5.
'use strict'
function drawChart(element, chart) {
  const x = chart.x || {}, y = chart.y || {}
  const color = name => getComputedStyle(element).getPropertyValue('--' + name).trim()
  const shown = v => v == null ? '–' : v.toLocaleString('en', { maximumSignificantDigits: 5 })
  const place = v => x.names ? x.names[x.at.indexOf(v)] ?? '' : shown(v)
  const unit = y.unit ? ' ' + y.unit : ''

  // A line has one column of values, and a line with a band has three. Lines may have different x.
  const tables = [], series = [{ label: x.label || 'x', value: (u, v) => v == null ? '–' : place(v) }], bands = [], lines = [{}]
  for (const line of chart.lines || []) {
    const shade = line.series < 0 ? 'muted' : 'series-' + line.series % 6
    const at = series.length, banded = line.low && line.high
    tables.push([line.x, line.y, ...banded ? [line.low, line.high] : []])
    series.push({
      label: line.name || y.unit || 'value', stroke: () => color(shade), width: line.mark === 'thick' ? 6 : 1.75,
      dash: line.mark === 'dashed' ? [5, 3] : undefined,
      points: { show: line.mark === 'dotted' || line.y.filter(v => v != null).length === 1, size: 6, fill: () => color(shade) },
      value: (u, v, s, i) => i == null || v == null ? '–' :
        shown(v) + unit + (banded ? ` (${shown(u.data[at + 1][i])} to ${shown(u.data[at + 2][i])})` : ''),
    })
    lines[at] = { shade, mark: line.mark }
    if (!banded) continue
    series.push({ class: 'edge', width: 0, points: { show: false } }, { class: 'edge', width: 0, points: { show: false } })
    bands.push({ series: [at + 2, at + 1], fill: () => color(shade) + '2e' })
  }
  if (!tables.length) return
  const data = uPlot.join(tables)

  // The x axis ends at its values, or a little beside a single value. The y axis begins at 0.
  const rangeX = (u, low, high) => low == null ? [0, 1] : low < high ? [low, high] : [low - 0.5, high + 0.5]
  const rangeY = (u, low, high) => low == null ? [0, 1] : [Math.min(0, low), high > 0 ? high * 1.05 : 1]
  const letters = '12px system-ui, sans-serif'
  const axis = more => ({
    stroke: () => color('muted'), font: letters, labelFont: letters, labelSize: 20,
    grid: { stroke: () => color('grid'), width: 1 }, ticks: { stroke: () => color('grid'), width: 1, size: 4 }, ...more,
  })
  const longest = Math.max(0, ...(x.names || []).map(n => n.length))
  // names omits a name that would touch the name before it.
  const names = (u, places) => {
    let free = -Infinity
    return places.map(v => {
      const text = place(v).length > 18 ? place(v).slice(0, 17) + '…' : place(v), half = text.length * 3.5 + 4
      const middle = u.valToPos(v, 'x')
      if (middle - half < free) return ''
      free = middle + half
      return text
    })
  }
  const numbers = (u, ticks) => ticks.map(v => v == null ? '' : shown(v))
  const size = () => ({ width: Math.max(element.clientWidth, 200), height: 240 })
  const gone = new AbortController()
  // A new size within the observer's own call is an error in the console.
  const fit = () => gone.signal.aborted || element.clientWidth === plot.width || plot.setSize(size())
  const resized = new ResizeObserver(() => requestAnimationFrame(fit))
  const plot = new uPlot({
    ...size(), series, bands,
    scales: { x: { time: false, range: rangeX }, y: { range: rangeY } },
    axes: [
      axis({
        label: x.label, size: 28, grid: { show: false }, values: x.names ? names : numbers,
        ...x.names && { splits: () => x.at },
      }),
      axis({ label: y.unit, values: numbers, size: (u, all) => 16 + 7 * Math.max(3, ...(all || []).map(v => v.length)) }),
    ],
    padding: [8, x.names ? Math.min(longest, 18) * 3.5 : 16, 0, 0],
    cursor: { y: false, drag: { x: false, y: false } },
    legend: {
      markers: {
        width: 2, stroke: (u, i) => `var(--${lines[i]?.shade})`, dash: (u, i) => lines[i]?.mark === 'dashed' ? 'dashed' : 'solid',
      },
    },
    hooks: { destroy: [() => { gone.abort(); resized.disconnect() }] },
  }, data, element)
  plot.root.setAttribute('role', 'img')
  plot.root.setAttribute('aria-label', chart.title || '')
  resized.observe(element)
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => plot.redraw(), { signal: gone.signal })
  return plot
}

for (const element of document.querySelectorAll('[data-chart]')) drawChart(element, JSON.parse(element.dataset.chart))
