-- bucket.lua computes token buckets (docs/protocol.md sections 3.2 and 3.3). A limit has the fields level,
-- rest, burst, most (burst plus overcommit), unit, step, tick and full (time to fill).

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

-- capacity returns the highest level to which limit l may refill while `held` tokens are leased (3.3).
local function capacity(l, held)
  if l.full == 3153600000000000 then return 0 end -- 100 years: such a limit gets no tokens
  local tokens = l.most - held
  if tokens > l.burst then tokens = l.burst elseif tokens < 0 then tokens = 0 end
  return tokens * l.unit
end

-- dropFullRest fills limit l if l.rest, the time waited toward the next tick, is worth the missing units,
-- `room`. A full limit gets a rest of 0.
local function dropFullRest(l, room)
  if room <= 0 or room < l.step and room * l.tick <= l.step * l.rest then
    if room > 0 then l.level = l.level + room end
    l.rest = 0
  end
end

-- refill adds the tokens of the time between `from` and `to` (step 2), while `held` tokens are leased.
local function refill(c, from, to, held)
  if to <= from then return end
  for k = 1, c.n do
    local l = c[k]
    local step, tick, room = l.step, l.tick, l.kind and 0 or capacity(l, held) - l.level
    if room <= 0 then
      l.rest = 0
    else
      local elapsed = to - from + l.rest
      local ticks, needed = elapsed / tick, (room + step - 1) / step
      ticks = ticks - ticks % 1
      if ticks >= needed - needed % 1 then
        l.level, l.rest = l.level + room, 0
      else
        room = room - ticks * step
        l.level, l.rest = l.level + ticks * step, elapsed - ticks * tick
        if room < step then dropFullRest(l, room) end
      end
    end
  end
end

-- wait returns the time until limit l has min(n, burst) tokens. frost is the time left of a freeze.
local function wait(l, n, frost)
  if l.kind then return l.wait(l, n, frost) end
  local missing = (n < l.burst and n or l.burst) * l.unit - l.level
  if missing <= 0 then return 0 end
  local ticks = (missing + l.step - 1) / l.step
  return (ticks - ticks % 1) * l.tick - l.rest + frost
end

-- seldom creates functions that few calls need, because each one costs time.
local function seldom(capacity, dropFullRest)
  local rules, floor, min, max = {}, math.floor, math.min, math.max

  -- widthFor returns the width of a slice of the ring: the least power of two w with 7*w >= ttl.
  function rules.widthFor(ttl)
    local _, e = math.frexp(math.ceil(ttl / 7) - 0.5)
    return 2 ^ e
  end

  -- deepest returns the largest amount that limit l may owe, in units (3.2).
  local function deepest(l)
    local exact, years = (2^53 - 1 - l.most * l.unit - l.step) / l.step, (3153600000000000 - l.full) / l.tick
    return floor(exact < years and exact or years) * l.step
  end
  rules.deepest = deepest

  -- fillBy raises the level of limit l by `units`, at most to its capacity, and returns whether the level
  -- rose.
  local function fillBy(l, units, held)
    local room = capacity(l, held)
    local raised = l.level + units > room and room or l.level + units
    local does = raised > l.level
    if does then l.level = raised end
    dropFullRest(l, room - l.level)
    return does
  end

  -- back credits n tokens that a known call returned (step 6).
  function rules.back(l, n, held) fillBy(l, min(n, l.burst) * l.unit, held) end

  -- late applies one late entry of the request to limit l (step 6), and returns whether it credited a refund.
  -- Unused tokens and refunds count only in a known call.
  function rules.late(l, kind, n, time, known, setAt, now, held)
    local units = min(n, l.burst) * l.unit
    if kind == 0 and known and time > setAt and time <= now then
      -- Credit the tokens minus the refill since their draw.
      local ticks = floor((now - time + l.tick - 1) / l.tick)
      if ticks < floor((units + l.step - 1) / l.step) then fillBy(l, units - ticks * l.step, held) end
    elseif kind == 1 and known then
      return fillBy(l, units, held)
    elseif kind == 2 then
      l.level = min(l.level, max(0, l.level - units))
    elseif kind == 3 then
      local deep = deepest(l)
      l.level = n > floor((l.level + deep) / l.unit) and 0 - deep or l.level - n * l.unit
    end
    return false
  end

  -- follow gives limit `to` the level of limit `from`, which it continues (6.11). `same` says that the limits
  -- are equal. A negative level is rounded down, so the owed amount is rounded up.
  function rules.follow(to, from, same)
    if same then
      to.level, to.rest = max(from.level, 0 - deepest(to)), from.rest
      return
    end
    local level = from.level
    if from.burst > to.burst then level = min(level, to.burst * from.unit) end
    if to.full == 3153600000000000 then level = min(level, 0) end
    local whole = floor(level / from.unit)
    -- part is floor(left * to.unit / from.unit), computed bit by bit so that no product exceeds 2^53.
    local left, part, over, y, bit = level - whole * from.unit, 0, 0, to.unit, 2^51
    while bit >= 1 do
      part, over = 2 * part, 2 * over
      if over >= from.unit then part, over = part + 1, over - from.unit end
      if y >= bit then
        y, over = y - bit, over + left
        if over >= from.unit then part, over = part + 1, over - from.unit end
      end
      bit = bit / 2
    end
    to.level = max(whole * to.unit + part, 0 - deepest(to))
  end

  return rules
end
