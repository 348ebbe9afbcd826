-- window.lua: the common part of sliding windows and calendars (docs/protocol.md section 3.10). KEYS, ARGV
-- and units: common.lua.
--
-- l.sum counts the charges of a window, in tokens; sliding.lua and calendar.lua know the times of the
-- charges. Leased tokens are in the ledger. In the text of a bucket the level of a window is l.sum.
--
-- Steps, with the numbers of lease.lua and open.lua:
--   2, 3  pass: time goes by, and the tokens of each slice that ends are charged
--   5     charge: the tokens reported as spent; 7: the tokens granted to requests that wait
--   6     late: the tokens that come back, debt and charge

-- rulesOf returns the functions of window.lua in a table, for a configuration with windows. Go puts rulesOf
-- and the kinds of windows into windowRules, so that calls without windows create only one function. All
-- times in arguments except clock are running times; ledger is in tokens.
local function rulesOf(kinds)
  local rules, floor, max, min = {}, math.floor, math.max, math.min

  -- each calls f(l, ...) for every window of configuration c.
  local function each(c, f, ...)
    for k = 1, c.n do
      if c[k].kind then f(c[k], ...) end
    end
  end

  local function advance(l, now, clock) l.past.pass(l, now, clock) end

  -- charge counts n tokens at the time `at`. charge drops tokens that would raise the sum above 2^52 - 1.
  local function charge(l, at, n)
    n = min(n, 2^52 - 1 - l.sum)
    if n <= 0 then return end
    l.sum = l.sum + n
    l.past.add(l, at, n)
  end

  -- uncharge takes up to n tokens from the oldest charges, and returns their number.
  local function uncharge(l, n)
    n = min(n, l.sum)
    l.sum = l.sum - n
    l.past.remove(l, n)
    return n
  end

  -- useUp charges all that the window has left, at the time `at`.
  local function useUp(l, at, ledger)
    local total = max(0, l.most - ledger, l.sum)
    uncharge(l, l.sum)
    charge(l, at, total)
  end

  -- spare returns the tokens that the window has left: negative if more was used than the limit allows.
  local function spare(l, ledger) return min(l.burst, l.most - ledger - l.sum) end

  -- wait returns the time until the window has n tokens, or its burst if n is more.
  local function wait(l, n, frost)
    local missing = min(n, l.burst) - l.spare
    return missing <= 0 and frost or max(frost, l.past.next(l, missing))
  end

  -- limit returns the window with these numbers of a configuration, or nil if they are invalid.
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

  -- read reads window l, with this sum and rest, from text at the index `at`. before is the clock at the
  -- running time `was`. read returns the index after the window, or nil if the text is damaged.
  function rules.read(l, text, at, sum, rest, was, before)
    if sum >= 2^52 then return nil end
    l.sum = sum
    return l.past.read(l, text, at, rest, was, before)
  end

  -- text returns the windows' part of a bucket's text. text also sets the level and rest of every window to
  -- the numbers to store.
  function rules.text(c)
    local all = ''
    each(c, function(l)
      local part
      part, l.rest = l.past.text(l)
      l.level, all = l.sum, all .. part
    end)
    return all
  end

  -- pass advances all windows to the running time `to`, at the server's time `clock`. pass charges held, the
  -- tokens of a slice that ends at `to`.
  function rules.pass(c, to, clock, held)
    c.clock = clock
    each(c, advance, to, clock)
    each(c, charge, to, held)
  end

  function rules.charge(c, now, n) each(c, charge, now, n) end

  -- begin starts every window of c without charges. If c starts empty, begin counts all its tokens as used.
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

  -- late executes step 6 for one late entry, if the window still counts the entry's time. Unused and refund
  -- count only if known. late returns whether a refund was credited.
  function rules.late(l, kind, n, time, known, setAt, now, frozen, ledger)
    if kind > 1 then time = max(0, now - time) end
    if time > now or not l.past.covers(l, time) then return false end
    if kind == 0 and known and time > setAt then uncharge(l, n) end
    if kind == 1 and known then return uncharge(l, n) > 0 end
    if kind == 2 then charge(l, time, now < frozen and 0 or min(n, spare(l, ledger))) end
    if kind == 3 then charge(l, time, n) end
    return false
  end

  -- see sets the level of every window to its tokens left, or to at most 0 while a loss is waited out.
  function rules.see(c, ledger, now, frozen)
    each(c, function(l)
      l.spare, l.now, l.target = spare(l, ledger), now, c.target
      l.clock, l.level = c.clock, now < frozen and min(l.spare, 0) or l.spare
    end)
  end

  -- follow makes window `to` continue the charges of window `from` (section 6.10). If `from` is nil, window
  -- `to` has all tokens, or none if usedUp.
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
