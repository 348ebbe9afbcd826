-- calendar.lua counts the charges of a calendar in one sum, for one numbered period of the server's clock
-- (docs/protocol.md section 3.10). A stored calendar has a rest of 0. Two doubles at the end of the bucket's
-- text are the number of the period, and the running time at which the period began.

local function calendar()
  local rules, floor, min = {}, math.floor, math.min

  -- limit adds the fields of a calendar to window l, and returns whether l's numbers are valid.
  function rules.limit(l)
    l.full, l.period, l.begun = l.tick, -2, 0
    return l.offset < l.tick
  end

  function rules.clear(l) l.period = -2 end

  -- pass starts a new sum when a later period begins. A sum for a period more than one ahead of the clock
  -- counts for the period after the present one.
  function rules.pass(l, now, clock)
    local since = clock - l.offset
    local period = floor(since / l.tick)
    if period > l.period then
      l.sum, l.period, l.begun = 0, period, now - (since - period * l.tick)
    else
      l.period = min(l.period, period + 1)
    end
  end

  function rules.add(l, at, n) end

  function rules.remove(l, n) end

  function rules.covers(l, at) return at >= l.begun end

  -- next returns the time until the next period.
  function rules.next(l, missing) return (l.period + 1) * l.tick + l.offset - l.clock end

  function rules.read(l, text, at, count, was, before)
    if count > 0 or at + 15 > #text then return nil end
    l.period, l.begun = decode('<dd', text, at)
    local starts = l.period * l.tick + l.offset
    if l.period % 1 ~= 0 or l.begun % 1 ~= 0 or starts + l.tick <= before or not (starts < 2^52)
        or l.begun > was or l.begun <= -2^52 then
      return nil
    end
    return at + 16
  end

  -- text returns the stored text of the calendar, and its stored rest.
  function rules.text(l) return encode('<dd', l.period, l.begun), 0 end

  function rules.follow(to, from) to.period, to.begun = from.period, from.begun end

  return rules
end
