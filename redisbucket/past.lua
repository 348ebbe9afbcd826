-- past.lua: the pasts of limits that are out of force (docs/protocol.md section 6.12). KEYS, ARGV and
-- units: common.lua.
--
-- A past records the use of a limit that has left, leases included, until it has refilled or been
-- dropped. A limit that comes back before then has no more than its past leaves. A bucket keeps at most
-- 8; the oldest makes room, and forgot then says that its limit may have been used up.
--
-- Pasts stand at the end of the long form of a bucket (common.lua), after the charges of windows, the
-- oldest first. Each is a multiple of 8 bytes, of integers without a sign, with the bytes of each:
--   the limit as in a configuration 30
--   used 7      token bucket: units below B + E; window: the sum of its charges
--   at 7        the running time of that, or forgot; calendar: the time its period began, or 0
--   more 7      sliding window: the number of cells that follow; calendar: the number of its period
--               plus 1, since the first is -1; token bucket: E
--   zero 5
-- and the cells of a sliding window, as in window.lua, counted from the oldest that was live at that time.
-- This text does not change from call to call: refills follow from the time.
--
-- Steps, as open.lua and change.lua number them:
--   1, 2  read: the text; prune: drop the pasts that have ended
--   2     forget: after a loss keep the pasts that owe. Where limits change: leave, for each that leaves;
--         own, for each token bucket; find, for each window; settled: drop the pasts of limits in force

-- pastRules returns the table of these functions, which hold the pasts, for a bucket that has pasts or whose
-- limits change. Other calls pay for one function that refers to nothing outside. shown is the time by
-- the server's clock, now is running time.
local function pastRules(shown, deepest, encode, decode)
  local rules, list, floor, max, min = {}, {}, math.floor, math.max, math.min
  local byte, sub = string.byte, string.sub

  -- identity returns a text that is equal for limits that are the same: token buckets of equal rate,
  -- per_ns, burst and units, or windows of equal kind, length and offset. The limit is in text at `at`.
  function rules.identity(text, at)
    local code = byte(text, at + 21)
    if code > 7 then return (code > 15 and 'c' or 's') .. sub(text, at + 7, at + 20) end
    return code % 4 .. sub(text, at, at + 20) .. sub(text, at + 22, at + 29)
  end

  -- keep drops every past for which over(p, ...) is true.
  local function keep(over, ...)
    local left = {}
    for i = 1, #list do
      if not over(list[i], ...) then left[#left + 1] = list[i] end
    end
    list = left
  end

  -- refilled returns how many of the units that were used at the time `at` are still used at now.
  local function refilled(used, at, l, now)
    local ticks = floor(max(0, now - at) / l.tick)
    return ticks >= floor((used + l.step - 1) / l.step) and 0 or used - ticks * l.step
  end

  -- ends returns the time from which the server's clock cannot step back into the period of p.
  local function ends(p) return (p.period + 1) * p.tick + p.offset + 10000000 end

  -- read reads the pasts from text, from the place `at` to the end. The bucket was settled at was. It
  -- returns false for damage.
  function rules.read(text, at, was, forgot)
    while at <= #text do
      if #list == 8 or at + 55 > #text then return false end
      local burst, unit, step, code = decode('<I7I7I7I1', text, at)
      local used, when, more, zero = decode('<I7I7I7I5', text, at + 30)
      if burst < 1 or burst >= 2^52 or zero ~= 0 then return false end
      local p, size = {id = rules.identity(text, at), at = when}, 56
      if code > 7 then
        p.kind = (code == 8 or code == 12) and 1 or (code == 16 or code == 20) and 2
        if not p.kind or step < 1000 or step > 1576800000000000 or unit >= step or used >= 2^52
            or when > was then
          return false
        end
        p.tick, p.offset, p.sum, p.cells = step, unit, used, {}
        if p.kind == 2 then
          p.period, p.begun = more - 1, when
          if p.period * step + unit >= 2^52 then return false end
        else
          size = 56 + 8 * more
          if unit > 0 or more < 1 or more > 61 or at + size - 1 > #text then return false end
          p.cell = max(1000, floor((step + 59) / 60))
          p.period, p.begun, p.first = 0, 0, max(0, floor((when - step) / p.cell))
          local last, total = -1, 0
          for place = at + 56, at + size - 8, 8 do
            local age, n = decode('<I1I7', text, place)
            if age <= last or p.first + age > when / p.cell or n < 1 then return false end
            p.cells[(p.first + age) % 61], last, total = n, age, total + n
          end
          if total ~= used then return false end
        end
      else
        local tick = code % 4
        tick = tick == 0 and 1 or tick == 1 and 1000 or 1000000
        if code > 6 or code == 3 or unit < 1 or step < 1 or step >= 2^52 or burst + more >= 2^52
            or (burst + more) * unit >= 2^52 or when > was and when > forgot
            or tick > 1 and step * tick >= 2^52 or used < 1 or used > 2^53 - step
            or floor((burst * unit + step - 1) / step) * tick > 3153600000000000 then
          return false
        end
        p.used, p.tick, p.step, p.over, p.all = used, tick, step, more, (burst + more) * unit
      end
      p.text = sub(text, at, at + size - 1)
      list[#list + 1], at = p, at + size
    end
    return true
  end

  -- write sets the text of p; limit is the 30 bytes of its limit.
  local function write(p, limit, more, cells)
    p.text = limit .. encode('<I7I7I7I5', p.used or p.sum, p.at, more, 0) .. cells
  end

  -- forget keeps the pasts that owe, which begin to refill at when. It returns whether any is left.
  function rules.forget(now, when)
    keep(function(p)
      if p.kind then return true end
      p.used = refilled(p.used, p.at, p, now)
      if p.used <= p.all then return true end
      p.at = when
      write(p, sub(p.text, 1, 30), p.over, '')
    end)
    return #list > 0
  end

  -- prune drops the pasts that have ended. It returns whether any is left.
  function rules.prune(now, clock)
    keep(function(p)
      if p.kind == 2 then return clock >= ends(p) end
      if p.kind == 1 then return now >= p.at + p.tick + p.cell end
      return refilled(p.used, p.at, p, now) == 0
    end)
    return #list > 0
  end

  -- longest returns how long the bucket must be kept for the pasts of calendars.
  function rules.longest()
    local longest = 0
    for i = 1, #list do
      if list[i].kind == 2 then longest = max(longest, ends(list[i]) - shown) end
    end
    return longest
  end

  -- text returns the text of all pasts.
  function rules.text()
    local parts = {}
    for i = 1, #list do parts[i] = list[i].text end
    return table.concat(parts)
  end

  -- find returns the past of a limit, or nil.
  function rules.find(id)
    for i = 1, #list do
      if list[i].id == id then return list[i] end
    end
  end

  -- leave adds the past of limit k of configuration c, which goes out of force. Leased tokens count as
  -- used, because they may be spent before the limit comes back. Until forgot every limit without a past
  -- counts as used up, so only a token bucket that owes needs one.
  function rules.leave(c, k, ledger, now, forgot)
    local l, p, more, cells = c[k], nil, 0, ''
    local id = rules.identity(c.text, 30 * k + 1)
    local other = rules.find(id) -- of two limits that are the same
    if l.kind then
      if now < forgot then return end
      p = {kind = l.kind, tick = l.tick, cell = l.cell, offset = l.offset, sum = l.sum, first = l.first,
        cells = {}, period = l.period, begun = l.begun, at = now}
      for i, n in pairs(l.cells) do p.cells[i] = n end
      c.windows.count(p, now, ledger)
      if p.kind == 1 and p.sum == 0 then return end
      if other then c.windows.atLeast(p, other) end
      if p.kind == 2 then
        p.begun = max(0, p.begun)
        p.at, more = p.begun, p.period + 1
      else
        for j = p.first, p.first + 60 do
          local n = p.cells[j % 61] or 0
          if n > 0 then more, cells = more + 1, cells .. encode('<I1I7', j - p.first, n) end
        end
      end
    else
      p = {used = l.most * l.unit - l.level, tick = l.tick, step = l.step,
        at = now < forgot and forgot or now - l.rest, over = l.most - l.burst, all = l.most * l.unit}
      if p.used <= (now < forgot and p.all or 0) or l.full == 3153600000000000 then return end
      if other then
        p.used, p.over = max(p.used, other.used), max(p.over, other.over)
        p.all = (l.burst + p.over) * l.unit
      end
      more = p.over
    end
    p.id = id
    write(p, sub(c.text, 30 * k + 1, 30 * k + 30), more, cells)
    keep(function(o) return o.id == id end)
    list[#list + 1] = p
  end

  -- own returns the level of token bucket l by its own past. The leases that it finds count as used and
  -- not paid for. A newer version is lent those beyond B + E.
  function rules.own(l, id, newer, ledger, now, forgot)
    local p, left = rules.find(id), l.most * l.unit
    if p then
      left = min(left, p.all - refilled(p.used, p.at, l, now))
    elseif forgot > 0 then -- it may have been used up when its past was forgotten
      left = left - refilled(left, forgot, l, now)
    end
    local leased, level, deep = newer and min(ledger, l.most) or ledger, left, deepest(l)
    if leased > floor((level + deep) / l.unit) then return 0 - deep end -- the product may be too large
    return min(level - leased * l.unit, l.burst * l.unit)
  end

  -- settled drops the pasts of limits in force, whose identities are the keys of ids. If more than 8 are
  -- left, it drops the oldest ones that owe nothing. It returns whether any is left, and the new forgot.
  function rules.settled(ids, now, forgot)
    keep(function(p) return ids[p.id] end)
    while #list > 8 do
      local oldest = 1
      for i = #list, 1, -1 do
        if list[i].kind or list[i].used <= list[i].all then oldest = i end
      end
      table.remove(list, oldest)
      forgot = max(forgot, now)
    end
    return #list > 0, forgot
  end

  return rules
end
