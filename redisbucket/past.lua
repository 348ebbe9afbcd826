-- past.lua: what a bucket remembers of limits that are not in force any more (docs/protocol.md section
-- 6.12). KEYS, ARGV and units: common.lua. Go puts it before common.lua, and after window.lua.
--
-- A limit that leaves is remembered with what was used of it, leases included, until that would have
-- refilled or been dropped. If it comes back before, it has no more than by that. At most 8 are
-- remembered; the oldest makes room, and then forgot says that it may have been used up.
--
-- At the end of the long form of a bucket (common.lua), after what is charged to windows, they stand
-- one after the other, the one that left first at the beginning, each a multiple of 8 bytes. Integers
-- without a sign, with the bytes of each:
--   the limit as in a configuration 30
--   used 7      of a token bucket, units below B + E; of a window the sum of what is charged
--   at 7        the running time of that, which may be that of forgot; of a calendar when its period
--               began, or 0 for earlier
--   more 7      of a sliding window how many cells follow; of a calendar the number of its period and
--               1 more, since the first is -1; of a token bucket E
--   zero 5
-- and for each cell of a sliding window in which something is charged, from the oldest: 1 for the
-- number of the cell, counted from the oldest that was live at that time, and 7 for its tokens.
-- What stands there does not change from call to call; what has refilled follows from the time.
--
-- Steps, as open.lua and change.lua number them:
--   1, 2  read: what is stored; prune: what has nothing left to remember is dropped
--   2     forget: after a loss nothing is known but what is owed; where limits change: leave, for each
--         that leaves; own, for each token bucket; find, for each window; settled: those that are in
--         force again are dropped

-- pastRules is the table of these functions and of the limits that are remembered, for a bucket that
-- remembers any, or whose limits change. The others pay for one function that refers to nothing
-- outside: deepest, encode and decode are common.lua's. shown is what the server's clock shows now,
-- now is running time. A limit is told by its identity, a text.
local function pastRules(shown, deepest, encode, decode)
  local rules, list, floor, max, min = {}, {}, math.floor, math.max, math.min
  local byte, sub = string.byte, string.sub

  -- identity is a text that is equal for two limits of which one takes up what the other has used:
  -- those of equal rate, per_ns, burst and units, or windows of equal kind, length and offset. The
  -- limit's 30 bytes are in text at the place `at`.
  local function identity(text, at)
    local code = byte(text, at + 21)
    if code > 7 then return (code > 15 and 'c' or 's') .. sub(text, at + 7, at + 20) end
    return code % 4 .. sub(text, at, at + 20) .. sub(text, at + 22, at + 29)
  end
  rules.identity = identity

  -- keep drops every past for which over(p, ...) is true.
  local function keep(over, ...)
    local left = {}
    for i = 1, #list do
      if not over(list[i], ...) then left[#left + 1] = list[i] end
    end
    list = left
  end

  -- refilled is what is left at the time now of units that were used at the time `at`.
  local function refilled(used, at, l, now)
    local ticks = floor(max(0, now - at) / l.tick)
    return ticks >= floor((used + l.step - 1) / l.step) and 0 or used - ticks * l.step
  end

  -- ends is when the server's clock, which may step back by 10 s, does not come back to a period.
  local function ends(p) return (p.period + 1) * p.tick + p.offset + 10000000 end

  -- read takes all that is remembered from text, from the place `at` to its end, of a bucket that was
  -- settled at the time was. It returns whether that can be trusted.
  function rules.read(text, at, was, forgot)
    while at <= #text do
      if #list == 8 or at + 55 > #text then return false end
      local burst, unit, step, code = decode('<I7I7I7I1', text, at)
      local used, when, more, zero = decode('<I7I7I7I5', text, at + 30)
      if burst < 1 or burst >= 2^52 or zero ~= 0 then return false end
      local p, size = {id = identity(text, at), at = when}, 56
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

  -- write makes the text of p, which is 30 bytes of a limit and what is remembered of it.
  local function write(p, limit, more, cells)
    p.text = limit .. encode('<I7I7I7I5', p.used or p.sum, p.at, more, 0) .. cells
  end

  -- forget has nothing be known of other limits up to the time until, but what is owed. It returns
  -- whether anything is left.
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

  -- prune drops what has nothing left to remember. It returns whether anything is left.
  function rules.prune(now, clock)
    keep(function(p)
      if p.kind == 2 then return clock >= ends(p) end
      if p.kind == 1 then return now >= p.at + p.tick + p.cell end
      return refilled(p.used, p.at, p, now) == 0
    end)
    return #list > 0
  end

  -- longest is for how long the bucket must be kept for the calendars that are remembered.
  function rules.longest()
    local longest = 0
    for i = 1, #list do
      if list[i].kind == 2 then longest = max(longest, ends(list[i]) - shown) end
    end
    return longest
  end

  -- text is the end of the text of a bucket.
  function rules.text()
    local parts = {}
    for i = 1, #list do parts[i] = list[i].text end
    return table.concat(parts)
  end

  -- find is what is remembered of a limit, nil for nothing.
  local function find(id)
    for i = 1, #list do
      if list[i].id == id then return list[i] end
    end
  end
  rules.find = find

  -- leave remembers limit k of configuration c, which is not in force any more. What is leased counts
  -- as used: it may be spent before the limit comes back. While other limits count as used up anyway,
  -- what is owed is remembered, and of a window nothing.
  function rules.leave(c, k, ledger, now, forgot)
    local l, p, more, cells = c[k], nil, 0, ''
    local id = identity(c.text, 30 * k + 1)
    local other = find(id) -- of two limits that are the same
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

  -- own is the level that token bucket l has by its own past. What is leased now it has yet to pay
  -- for; to a newer version, which comes now and then, it lends what is leased beyond B + E.
  function rules.own(l, id, newer, ledger, now, forgot)
    local p, left = find(id), l.most * l.unit
    if p then
      left = min(left, p.all - refilled(p.used, p.at, l, now))
    elseif forgot > 0 then -- it may have been used up when its past was forgotten
      left = left - refilled(left, forgot, l, now)
    end
    local leased, level, deep = newer and min(ledger, l.most) or ledger, left, deepest(l)
    if leased > floor((level + deep) / l.unit) then return 0 - deep end -- the product may be too large
    return min(level - leased * l.unit, l.burst * l.unit)
  end

  -- settled drops those whose identity is a key of ids, which are in force again, and of more than 8 the
  -- oldest that owes nothing. It returns whether anything is left, and what forgot becomes.
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
