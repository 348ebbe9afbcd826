// Writes into #faults what cannot be read in the frames: an array of sentences.
const least = 10 // pixels of the letters of any text, on the screen
const slack = 1.5 // pixels that do not matter
const desk = 1200 // pixels of a screen with room for every table

// The part of a box in which letters have ink, about.
const ink = r => ({ left: r.left, right: r.right, top: r.top + r.height * 0.15, bottom: r.bottom - r.height * 0.15 })

// Every line of text that is shown: where it is, how large, and in which element.
function lines(doc) {
  const all = [], walker = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT)
  for (let node; (node = walker.nextNode());) {
    const within = node.parentElement, text = node.data.trim().replace(/\s+/g, ' ')
    if (!text || within.closest('title, style, script') || !within.getClientRects().length) continue
    const size = parseFloat(doc.defaultView.getComputedStyle(within).fontSize)
    const range = doc.createRange()
    range.selectNodeContents(node)
    for (const r of range.getClientRects()) if (r.width > 0) all.push({ text, within, box: ink(r), px: size })
  }
  return all
}

// Whether a line is beyond what is seen of an element around it, and cannot be scrolled to. What can be
// is taken as seen as far as its box is.
function cut(line, doc) {
  for (let e = line.within; e && e !== doc.documentElement; e = e.parentElement) {
    const style = doc.defaultView.getComputedStyle(e), box = e.getBoundingClientRect()
    const beyond = line.box.left < box.left - slack || line.box.right > box.right + slack
    if (/auto|scroll/.test(style.overflowX)) {
      if (line.box.left < box.left - e.scrollLeft - slack || line.box.right > box.left + e.scrollWidth + slack) return true
      line.box.left = Math.max(line.box.left, box.left)
      line.box.right = Math.min(line.box.right, box.right)
      return false
    } else if (style.overflowX !== 'visible' && beyond) return true
  }
  return line.box.left < -slack || line.box.right > doc.documentElement.clientWidth + slack
}

function faults(frame) {
  const doc = frame.contentDocument, found = [], all = lines(doc)
  const say = what => found.push(frame.title + ': ' + what), short = text => '"' + text.slice(0, 40) + '"'
  if (!all.length) say('there is no text')
  if (doc.documentElement.scrollWidth > doc.documentElement.clientWidth) say('the page is wider than the screen')
  for (const line of all) {
    if (line.px < least) say(short(line.text) + ' has ' + Math.round(line.px * 10) / 10 + ' px')
    if (cut(line, doc)) say(short(line.text) + ' is cut')
  }
  for (const e of doc.querySelectorAll('[data-chart]')) {
    const canvas = e.querySelector('canvas'), box = canvas?.getBoundingClientRect(), over = e.querySelector('.u-over')
    if (!box || box.width < 200 || box.width > e.clientWidth + slack || box.height < 150) { say('a chart has no canvas'); continue }
    const values = () => [...e.querySelectorAll('.u-series:not(.edge) .u-value')].map(v => v.textContent)
    const at = over.getBoundingClientRect(), where = { clientX: at.left + 1, clientY: at.top + at.height / 2 }
    for (const type of ['mouseenter', 'mousemove']) over.dispatchEvent(new frame.contentWindow.MouseEvent(type, where))
    if (values().length < 2 || !values().some(v => /\d/.test(v))) say('no value under the pointer: ' + values())
  }
  if (frame.contentWindow.performance.getEntriesByType('resource').length) say('something is loaded')
  for (const e of doc.body.querySelectorAll('*')) {
    const style = part => doc.defaultView.getComputedStyle(e, part)
    if (!/auto|scroll/.test(style().overflowX) || e.scrollWidth <= e.clientWidth + slack) continue
    if (doc.documentElement.clientWidth >= desk && e.querySelector('table')) {
      say('a table of ' + e.scrollWidth + ' px is cut at ' + e.clientWidth)
    }
    const shadow = part => /gradient/.test(style(part).backgroundImage) && (!part || style(part).position === 'sticky')
    if (!shadow() && !shadow('::before')) say(short(e.textContent.trim()) + ' scrolls without a hint')
  }
  const seen = all.filter(l => l.box.right > l.box.left)
  seen.forEach((a, i) => seen.slice(i + 1).forEach(b => {
    const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left)
    const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top)
    if (across > slack && down > slack) say(short(a.text) + ' lies over ' + short(b.text))
  }))
  return found
}

addEventListener('load', () => {
  const all = [...document.querySelectorAll('iframe')].flatMap(faults)
  document.getElementById('faults').textContent = JSON.stringify(all)
})
