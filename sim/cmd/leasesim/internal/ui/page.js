// The page of leasesim ui. The address has the values of all knobs. After a change of a knob, the server simulates
// again, and each line of its answer replaces a part of the page. The page inserts what the server sends only as text.
const $ = id => document.getElementById(id)
const token = document.querySelector('meta[name=token]').content
const knobs = [...document.querySelectorAll('.knob')].map(box => {
  const field = box.querySelector('select, input:not([type=range])'), slider = box.querySelector('[type=range]')
  const given = slider ? slider.dataset.steps.match(/[\d.e+-]+/g).map(Number) : []
  return { name: box.dataset.name, standard: box.dataset.default, field, slider, wrong: box.querySelector('.wrong'),
    steps: box.dataset.default ? given : ['', ...given] }
})

// element makes an element with properties and children. A child is an element or a text.
function element(name, properties, ...children) {
  const e = Object.assign(document.createElement(name), properties)
  e.append(...children)
  return e
}
const show = (e, is) => { e.hidden = !is }

// place moves the slider of a knob to the step nearest to the value of the field. For an empty field, that is step 0.
function place(knob) {
  if (!knob.slider) return
  const x = Number(knob.field.value.replaceAll(',', '')), far = s => s === '' ? Infinity : Math.abs(Math.log(s / x))
  const at = knob.field.value.trim() === '' ? 0 : knob.steps.reduce((best, s, i) => far(s) < far(knob.steps[best]) ? i : best, 0)
  Object.assign(knob.slider, { min: 0, max: knob.steps.length - 1, value: at })
  knob.slider.setAttribute('aria-valuetext', knob.field.value || 'default')
}

function query() {
  const all = new URLSearchParams(unknown)
  for (const k of knobs) all.set(k.name, k.field.value.trim())
  return all.toString()
}

// Unknown settings of the link go to the server, which reports them.
const linked = new URLSearchParams(location.search)
const unknown = [...linked].filter(([name]) => !knobs.some(k => k.name === name))
for (const k of knobs) {
  const text = linked.get(k.name) ?? k.standard
  if (k.slider === null && ![...k.field.options].some(o => o.value === text)) k.field.append(new Option(text, text))
  k.field.value = text
  place(k)
}

// ask sends a request and calls heard with each line of the answer. An abort by signal also ends the simulation.
async function ask(path, headers, signal, heard) {
  const lost = () => {
    if (!signal.aborted) heard({ kind: 'failed', text: 'leasesim does not answer. Start leasesim again, and load this page again.' })
  }
  const r = await fetch(path + '?' + query(), { method: 'POST', signal, headers: { 'X-Token': token, ...headers } }).catch(lost)
  if (!r) return
  if (!r.ok) return heard({ kind: 'failed', text: await r.text() })
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader()
  for (let rest = '', part; (part = await reader.read().catch(lost)) && !part.done;) {
    const lines = (rest + part.value).split('\n')
    rest = lines.pop()
    for (const line of lines) if (!signal.aborted) heard(JSON.parse(line))
  }
}

function tableOf(t, here) {
  const rows = t.cells.map((row, i) => element('tr', { className: i && here && row[0].Text === here ? 'here' : '' },
    ...row.map(c => element(i ? 'td' : 'th', { className: c.Right ? 'right' : c.Text.length > 24 ? 'words' : '' }, c.Text))))
  return element('div', { className: 'scroll', tabIndex: 0 }, element('table', {}, ...rows))
}

function tables(into, all, here) {
  into.replaceChildren(...all.flatMap(t => [
    ...t.title ? [element('h3', {}, t.title)] : [], ...t.cells ? [tableOf(t, here)] : [],
    ...t.code ? [element('pre', { tabIndex: 0 }, t.code)] : [],
    ...t.text ? [element('details', {}, element('summary', {}, 'How to read it'), ...t.text.map(s => element('p', {}, s)))] : []]))
}

const plots = {}
function charts(into, all) {
  for (const plot of plots[into.id] || []) plot.destroy()
  const boxes = all.map(c => element('div', { className: 'chart' }))
  into.replaceChildren(...all.map((c, i) => element('figure', {}, element('h3', {}, c.title), boxes[i])))
  plots[into.id] = all.map((c, i) => drawChart(boxes[i], c)).filter(Boolean)
  for (const box of boxes) box.dataset.chart = ''
}

// number returns a figure without the words after it.
const number = text => text.match(/^[^,a-z]*/)[0].trim()

const verdicts = all => all.map(v => element('p', { className: 'verdict ' + v.Mood }, v.Text))

// The page shows the values before the last change beside the new values.
let planner, used, shown = {}, before = {}, running = new AbortController(), timer, answered

// fresh marks parts of the page that show the present settings.
const fresh = (...ids) => ids.forEach(id => $(id).classList.remove('stale'))

const parts = {
  texts: e => { for (const id of ['yaml', 'code']) $(id).textContent = e[id] },
  progress: e => { show($('progress'), true); $('progress').value = e.done || 0; $('status').textContent = `Simulating ${e.text} …` },
  figures: e => {
    $('status').textContent = answered = e.text
    fresh('figures', 'meanings', 'verdicts', 'time')
    const was = f => (before[f.name] ?? f.value) === f.value ? '' : ' was ' + number(before[f.name])
    $('figures').replaceChildren(...e.figures.map(f => element('div', {}, element('dt', {}, f.name),
      element('dd', {}, number(f.value), ...f.fault ? [element('small', {}, f.fault)] : [], element('small', {}, was(f))))))
    $('meanings').replaceChildren(...e.figures.map(f => element('p', {}, element('b', {}, f.name),
      ` ${f.exact}${f.value.slice(number(f.value).length)}. ${f.text}`)))
    shown = Object.fromEntries(e.figures.map(f => [f.name, f.value]))
    $('verdicts').replaceChildren(...verdicts(e.verdicts))
    charts($('time'), e.charts || [])
  },
  loads: e => { fresh('loads', 'curves'); tables($('loads'), e.tables, String(Number($('load').value))); charts($('curves'), e.charts || []) },
  rivals: e => { fresh('rivals'); tables($('rivals'), e.tables) },
  long: e => {
    $('notice').replaceChildren(element('p', {}, e.text), element('p', { className: 'buttons' },
      element('button', { type: 'button', onclick: () => set('seconds', e.seconds) }, `Simulate ${e.seconds} s`),
      element('button', { type: 'button', onclick: () => simulate({ 'X-Anyway': '1' }) }, 'Simulate all of it')))
    show($('notice'), true)
  },
  wrong: e => {
    for (const w of e.wrong) fault(knobs.find(k => k.name === w.knob), w.text)
    $('status').textContent = 'A setting is invalid. The figures are those before the last change.'
  },
  failed: e => { $('notice').textContent = e.text; show($('notice'), true) },
  done: () => { $('status').textContent = answered + '. Done' },
}

function fault(knob, text) {
  if (!knob) return parts.failed({ text })
  const label = document.querySelector(`label[for="${knob.field.id}"]`)
  knob.wrong.textContent = text.startsWith('is ') ? label.textContent + ' ' + text : text
  show(knob.wrong, true)
  knob.field.setAttribute('aria-invalid', 'true')
}

async function simulate(headers) {
  running.abort()
  const mine = running = new AbortController()
  for (const k of knobs) { show(k.wrong, false); k.field.removeAttribute('aria-invalid') }
  show($('notice'), false)
  show($('stop'), true)
  $('status').textContent = 'Simulating …'
  for (const id of ['figures', 'meanings', 'verdicts', 'time', 'loads', 'curves', 'rivals', 'planOf']) $(id).classList.add('stale')
  if ($('planOf').hasChildNodes() && !planner) $('planning').textContent = used ? 'The settings have the policy of this plan.' : 'This plan is for earlier settings.'
  if (used) fresh('planOf')
  used = false
  await ask('simulate', headers, mine.signal, e => parts[e.kind](e))
  if (mine === running) { show($('stop'), false); show($('progress'), false) }
}

// changed starts one simulation after several quick changes.
function changed() {
  if (!timer) before = shown
  clearTimeout(timer)
  timer = setTimeout(() => { timer = 0; history.replaceState(null, '', '?' + query()); simulate({}) }, 150)
}

function set(name, value) {
  const knob = knobs.find(k => k.name === name)
  knob.field.value = value
  place(knob)
  changed()
}

for (const k of knobs) {
  k.field.addEventListener('input', () => { place(k); changed() })
  k.slider?.addEventListener('input', () => set(k.name, k.steps[k.slider.value]))
}
$('knobs').addEventListener('submit', e => e.preventDefault())
$('reset').onclick = () => { unknown.length = 0; for (const k of knobs) set(k.name, k.standard) }
$('stop').onclick = () => { running.abort(); $('status').textContent = 'Stopped.'; show($('stop'), false); show($('progress'), false) }

$('plan').onclick = async () => {
  planner?.abort()
  const mine = planner = new AbortController()
  show($('wrong-wrong'), false)
  $('planOf').replaceChildren()
  for (const id of ['cancel', 'planned']) show($(id), true)
  show($('use'), false)
  $('planning').textContent = 'Planning, which takes as long as 20 to 40 runs …'
  await ask('plan', { 'X-Wrong': $('wrong').value }, mine.signal, e => {
    if (e.kind === 'progress') { $('planned').value = e.done || 0; $('planning').textContent = `Planning, step ${1 + ['grid', 'refine', 'confirm', 'stress'].indexOf(e.text)} of 4 …`; return }
    $('planning').textContent = e.text || ''
    if (e.kind === 'wrong') for (const w of e.wrong) fault({ field: $('wrong'), wrong: $('wrong-wrong') }, (w.knob === 'wrong' ? '' : w.knob + ' ') + w.text)
    if (e.kind !== 'plan') return
    $('wrong').removeAttribute('aria-invalid')
    fresh('planOf')
    tables($('planOf'), e.tables)
    $('planOf').prepend(...verdicts(e.verdicts))
    show($('use'), e.policy)
    $('use').onclick = () => { used = true; set('target_ms', e.policy.default_target ? '' : millis(e.policy.target)); set('ttl_ms', e.policy.default_ttl ? '' : millis(e.policy.ttl)) }
  })
  if (mine !== planner) return
  planner = null
  for (const id of ['cancel', 'planned']) show($(id), false)
}
$('wrong').addEventListener('keydown', e => { if (e.key === 'Enter') $('plan').click() })
$('cancel').onclick = () => { planner?.abort(); planner = null; $('planning').textContent = 'Cancelled.'; for (const id of ['cancel', 'planned']) show($(id), false) }

// millis converts a duration of Go, such as 1m2.5s, to milliseconds.
function millis(text) {
  const units = { h: 3.6e6, m: 6e4, s: 1e3, ms: 1, 'µs': 1e-3, ns: 1e-6 }
  return [...text.matchAll(/([\d.]+)(h|ms|µs|ns|m|s)/g)].reduce((sum, [, x, unit]) => sum + x * units[unit], 0)
}

simulate({})
