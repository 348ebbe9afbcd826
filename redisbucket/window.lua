-- window.lua has the code that sliding windows and calendars share (docs/protocol.md section 3.10). l.sum is
-- the number of charged tokens of window l, and stored in place of a level. sliding.lua and calendar.lua keep
-- the times of the charges. Leased tokens are in the ledger and not in l.sum.

-- rulesOf returns the functions of window.lua. Go puts window.lua, sliding.lua and calendar.lua into the
-- function windowRules, so that a call without windows creates only one function. All times but `clock` are
-- running times.
local function rulesOf(kinds)
  local rules, floor, max, min = {}, math.floor, math.max, math.min

  -- each calls f(l, ...) for every window of configuration c.
  local function each(c, f, ...)
    for k = 1, c.n do
      if c[k].kind then f(c[k], ...) end
    end
  end

  local function advance(l, now, clock) l.past.pass(l, now, clock) end

  -- charge adds n tokens at the time `at`, or as many as the sum can hold.
  local function charge(l, at, n)
    n = min(n, 2^52 - 1 - l.sum)
    if n <= 0 then return end
    l.sum = l.sum + n
    l.past.add(l, at, n)
  end

  -- uncharge removes up to n tokens of the oldest charges, and returns their number.
  local function uncharge(l, n)
    n = min(n, l.sum)
    l.sum = l.sum - n
    l.past.remove(l, n)
    return n
  end

  -- useUp replaces all charges of window l by one at the time `at`, which leaves no tokens.
  local function useUp(l, at, ledger)
    local total = max(0, l.most - ledger, l.sum)
    uncharge(l, l.sum)
    charge(l, at, total)
  end

  -- spare returns the number of tokens that the window has left, which an overshoot makes negative.
  local function spare(l, ledger) return min(l.burst, l.most - ledger - l.sum) end

  -- wait returns the time until window l has min(n, burst) tokens.
  local function wait(l, n, frost)
    local missing = min(n, l.burst) - l.spare
    return missing <= 0 and frost or max(frost, l.past.next(l, missing))
  end

  -- limit returns the window with these numbers of a configuration, or nil if a number is invalid.
  function rules.limit(burst, most, offset, length, code)
    local kind = (code - code % 8) / 8
    if code % 8 ~= 0 and code % 8 ~= 4 or not kinds[kind] or burst < 1 or most >= 2^52 or length < 1000
        or length > 1576800000000000 then
      return nil
    end
    rules[kind] = rules[kind] or kinds[kind]()
    local l = {burst = burst, most = most, unit = 1, step = burst, tick = length, level = 0, rest = 0,
      kind = kind, past = rules[kind], offset = offset, wait = wait, sum = 0}
    return l.past.limit(l) and l or nil
  end

  -- read reads the charges of window l from `text` at the index `at`. read returns the index after the
  -- charges, or nil if the text is damaged. `before` is the server's clock at the running time `was`.
  function rules.read(l, text, at, sum, rest, was, before)
    if sum >= 2^52 then return nil end
    l.sum = sum
    return l.past.read(l, text, at, rest, was, before)
  end

  -- text returns the stored text of all windows, and sets the level and the rest of each to the stored
  -- numbers.
  function rules.text(c)
    local all = ''
    each(c, function(l)
      local part
      part, l.rest = l.past.text(l)
      l.level, all = l.sum, all .. part
    end)
    return all
  end

  -- pass advances all windows to the running time `to`, and charges `held`, the tokens of a slice that ends
  -- then.
  function rules.pass(c, to, clock, held)
    c.clock = clock
    each(c, advance, to, clock)
    each(c, charge, to, held)
  end

  function rules.charge(c, now, n) each(c, charge, now, n) end

  -- begin starts every window of c without charges, or, if c starts empty, with all tokens charged.
  function rules.begin(c, now, clock, ledger)
    c.clock = clock
    each(c, function(l)
      l.sum = 0
      l.past.clear(l)
      l.past.pass(l, now, clock)
    end)
    rules.useUp(c, now, ledger)
  end
  function rules.useUp(c, now, ledger)
    if c.empty then each(c, useUp, now, ledger) end
  end

  -- late applies one late entry of the request to window l (step 6), if the window still counts the entry's
  -- time, and returns whether it credited a refund. Unused tokens and refunds count only in a known call.
  function rules.late(l, kind, n, time, known, setAt, now, frozen, ledger)
    if kind > 1 then time = max(0, now - time) end
    if time > now or not l.past.covers(l, time) then return false end
    if kind == 0 and known and time > setAt then uncharge(l, n) end
    if kind == 1 and known then return uncharge(l, n) > 0 end
    if kind == 2 then charge(l, time, now < frozen and 0 or min(n, spare(l, ledger))) end
    if kind == 3 then charge(l, time, n) end
    return false
  end

  -- see sets the level of every window to the number of tokens left, but to at most 0 during a freeze.
  function rules.see(c, ledger, now, frozen)
    each(c, function(l)
      l.spare, l.now, l.target = spare(l, ledger), now, c.target
      l.clock, l.level = c.clock, now < frozen and min(l.spare, 0) or l.spare
    end)
  end

  -- follow gives window `to` the charges of window `from`, which it continues (6.10). If `from` is nil,
  -- usedUp says whether window `to` starts without tokens.
  function rules.follow(to, from, usedUp, ledger, now)
    if from then
      to.sum = from.sum
      to.past.follow(to, from)
    elseif usedUp then
      useUp(to, now, ledger)
    end
  end

  return rules
end
