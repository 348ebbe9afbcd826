-- window.lua: the rules of windows (docs/protocol.md section 3.10). KEYS, ARGV and units: common.lua.
--
-- A sliding window counts its charges in cells: cell j covers [j * cell, (j + 1) * cell) of the
-- bucket's running time, is in cells[j % 61], and is dropped when all of it is older than the window. A
-- calendar counts one sum, for the period of that number by the server's clock. Leased tokens are in
-- the ledger.
--
-- In the long form of a bucket (common.lua) the level of a window is the sum of its charges, in tokens.
-- Its rest is the number of stored cells, or the running time at which a calendar's period began. At
-- the end of the text, for each window in turn, in multiples of 8 bytes:
--   of a sliding window  for each cell with a charge, from the oldest, integers without a sign: 1 byte
--                        for its number, counted from the oldest that is live at the running time, and
--                        7 for its tokens
--   of a calendar        the number of the period, a double
--
-- Steps, as lease.lua and open.lua number them:
--   2, 3  pass: time goes by, and the tokens of each slice that ends are charged
--   5     charge: the tokens reported as spent; 7: the tokens granted to requests that wait
--   6     credit: the tokens that come back, debt and charge

-- windowRules returns the table of these functions, for a configuration with windows. Other calls pay
-- for one function that refers to nothing outside. All times in arguments except clock are
-- running time; ledger is in tokens.
local function windowRules(encode, decode)
  local rules, floor, max, min = {}, math.floor, math.max, math.min

  -- each calls f(l, ...) for every window of configuration c.
  local function each(c, f, ...)
    for k = 1, c.n do
      if c[k].kind then f(c[k], ...) end
    end
  end

  -- advance lets time pass up to now, when the server's clock says clock. A clock that steps back leaves the
  -- period that has begun, or makes it the next one.
  local function advance(l, now, clock)
    if l.kind == 2 then
      local since = clock - l.offset
      local period = floor(since / l.tick)
      if period > l.period then
        l.sum, l.period, l.begun = 0, period, now - (since - period * l.tick)
      else
        l.period = min(l.period, period + 1)
      end
      return
    end
    local first = max(0, floor((now - l.tick) / l.cell))
    for j = l.first, min(first, l.first + 61) - 1 do
      local i = j % 61
      l.sum, l.cells[i] = l.sum - (l.cells[i] or 0), nil
    end
    l.first = max(l.first, first)
  end

  -- charge counts n tokens at the time `at`. It drops tokens beyond the largest number.
  local function charge(l, at, n)
    n = min(n, 2^52 - 1 - l.sum)
    if n <= 0 then return end
    l.sum = l.sum + n
    if l.kind == 1 then
      local i = floor(at / l.cell) % 61
      l.cells[i] = (l.cells[i] or 0) + n
    end
  end

  -- uncharge takes up to n tokens from the oldest live cells, and returns how many.
  local function uncharge(l, n)
    n = min(n, l.sum)
    l.sum = l.sum - n
    local j, left = l.first, l.kind == 1 and n or 0
    while left > 0 do
      local i = j % 61
      local took = min(left, l.cells[i] or 0)
      if took > 0 then l.cells[i], left = l.cells[i] - took, left - took end
      j = j + 1
    end
    return n
  end

  -- covers reports whether charges at the time `at`, or later, still count.
  local function covers(l, at)
    if l.kind == 2 then return at >= l.begun end
    return floor(at / l.cell) >= l.first
  end

  -- useUp leaves nothing of the window at the time `at`.
  local function useUp(l, at, ledger)
    local total = max(0, l.most - ledger, l.sum)
    l.sum, l.cells = 0, {}
    charge(l, at, total)
  end

  -- spare returns the tokens that the window has left: negative where more was used than a changed
  -- limit allows.
  local function spare(l, ledger) return min(l.burst, l.most - ledger - l.sum) end

  -- wait returns the time until the window has n tokens, or all: until enough of the oldest cells have
  -- been dropped, or until the boundary. If only the tokens that others hold are missing, it returns a
  -- Target.
  local function wait(l, n, frost)
    local missing, at = min(n, l.burst) - l.spare, 0
    if missing <= 0 then return frost end
    if l.kind == 2 then return max(frost, (l.period + 1) * l.tick + l.offset - l.clock) end
    for j = l.first, l.first + 60 do
      local charged = l.cells[j % 61] or 0
      if charged > 0 and missing > 0 then
        at, missing = (j + 1) * l.cell + l.tick, missing - charged
      end
    end
    return max(frost, at == 0 and l.target or at - l.now)
  end

  -- limit returns the window with these numbers of a configuration, or nil if they are wrong.
  function rules.limit(burst, most, offset, length, code)
    local kind = (code == 8 or code == 12) and 1 or (code == 16 or code == 20) and 2
    if not kind or burst < 1 or most >= 2^52 or length < 1000 or length > 1576800000000000
        or offset >= length or kind == 1 and offset > 0 then
      return nil
    end
    local cell = kind == 1 and max(1000, floor((length + 59) / 60)) or 0
    return {burst = burst, most = most, unit = 1, step = burst, tick = length, full = length + cell,
      level = 0, rest = 0, kind = kind, cell = cell, offset = offset, wait = wait,
      sum = 0, first = 0, cells = {}, period = -2, begun = 0}
  end

  -- read takes window l, whose sum and rest are given, from text at the place `at`. before is the clock
  -- at the running time was. The result is the place of the next one, nil for damage.
  function rules.read(l, text, at, sum, rest, was, before)
    if not (sum % 1 == 0 and rest % 1 == 0) or sum < 0 or sum >= 2^52 then return nil end
    if l.kind == 2 then
      if at + 7 > #text then return nil end
      local period = decode('<d', text, at)
      local starts = period * l.tick + l.offset
      if period % 1 ~= 0 or starts + l.tick <= before or starts >= 2^52 or rest > was or rest <= -2^52 then
        return nil
      end
      l.sum, l.period, l.begun = sum, period, rest
      return at + 8
    end
    if rest < 0 or rest > 61 or at + 8 * rest - 1 > #text then return nil end
    l.sum, l.first = sum, max(0, floor((was - l.tick) / l.cell))
    local last, total = -1, 0
    for i = 1, rest do
      local age, n = decode('<I1I7', text, at)
      if age <= last or l.first + age > was / l.cell or n < 1 then return nil end
      l.cells[(l.first + age) % 61], last, total, at = n, age, total + n, at + 8
    end
    return total == sum and at or nil
  end

  -- text returns the end of the text of a bucket, and sets the level and the rest of every window to
  -- the numbers to store.
  function rules.text(c)
    local parts = {}
    each(c, function(l)
      l.level, l.rest = l.sum, l.begun
      if l.kind == 2 then
        parts[#parts + 1] = encode('<d', l.period)
        return
      end
      l.rest = 0
      for j = l.first, l.first + 60 do
        local charged = l.cells[j % 61] or 0
        if charged > 0 then
          l.rest, parts[#parts + 1] = l.rest + 1, encode('<I1I7', j - l.first, charged)
        end
      end
    end)
    return table.concat(parts)
  end

  -- pass lets time go by up to `to`, when the server's clock says clock, and charges the tokens of the slice
  -- that ends then.
  function rules.pass(c, to, clock, held)
    c.clock = clock
    each(c, advance, to, clock)
    each(c, charge, to, held)
  end

  function rules.charge(c, now, n) each(c, charge, now, n) end

  -- begin starts every window of c without charges; clear too, if time has passed. If c starts empty,
  -- all is used up.
  function rules.begin(c, now, clock)
    c.clock = clock
    each(c, advance, now, clock)
  end
  function rules.clear(c, now, clock, ledger)
    each(c, function(l)
      l.sum, l.cells, l.period = 0, {}, -2
      advance(l, now, clock)
    end)
    rules.useUp(c, now, ledger)
  end
  function rules.useUp(c, now, ledger)
    if c.empty then each(c, useUp, now, ledger) end
  end

  -- late does step 6 for one entry of what is reported late, as far as the window still counts that time. known
  -- says that the tokens that come back count. It returns whether a refund did.
  function rules.late(l, kind, n, time, known, setAt, now, frozen, ledger)
    if kind > 1 then time = max(0, now - time) end
    if time > now or not covers(l, time) then return false end
    if kind == 0 and known and time > setAt then uncharge(l, n) end
    if kind == 1 and known then return uncharge(l, n) > 0 end
    if kind == 2 then charge(l, time, now < frozen and 0 or min(n, spare(l, ledger))) end
    if kind == 3 then charge(l, time, n) end
    return false
  end

  -- see sets the level of every window to the tokens that it has left: while a loss is waited out, none.
  function rules.see(c, ledger, now, frozen)
    each(c, function(l)
      l.spare, l.now, l.target = spare(l, ledger), now, c.target
      l.clock, l.level = c.clock, now < frozen and min(l.spare, 0) or l.spare
    end)
  end

  -- follow has window `to` go on with the charges of window `from` (section 6.10). Without one nothing is
  -- charged to it, or if usedUp nothing left of it.
  function rules.follow(to, from, usedUp, ledger, now)
    if from then
      to.sum, to.cells, to.first, to.period, to.begun = from.sum, from.cells, from.first, from.period, from.begun
    elseif usedUp then
      useUp(to, now, ledger)
    end
  end

  return rules
end
