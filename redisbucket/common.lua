-- common.lua describes the keys, arguments and stored values, and defines functions that all calls share.
--
-- Go joins the files into one script: sliding.lua, calendar.lua, window.lua, bucket.lua and common.lua
-- (functions), open.lua (reads the bucket), change.lua (lost state, changed limits, T), lease.lua or
-- configure.lua, and close.lua (writes). The script of lease.lua begins with draw.lua, and that of draws.lua
-- has no other file than draw.lua. Local variables hold the bucket's state. Redis runs the whole script for
-- every call, so each function that the script creates costs time, and so does each table field, each use of
-- an outer variable, and each byte of text.
--
-- KEYS[1] is the text of the bucket:
--          'y'; a byte, the layout's number plus 8 times the form; and integers without a sign. The number
--          after a name is the size of the field in bytes. The form is the number of limits less 1, plus the
--          number before each optional part that the bucket has (section 3.9).
--            epoch 7, counter 6, now 7, ttl 4, spent 6, denied 6
--            level 7, rest 3 of the first limit; of a window see window.lua
--            8   if the bucket is in use: share, a double; width 4, keep 7, moved 7, contended 7, idle 7; the tokens
--                held in each of the 8 slots of the ring, 7 each, and the weights there, 7 each
--            level 7, rest 3 of each other limit
--            4   setAt 7, if it is not epoch - 1
--            16  if the bucket has a past, and 8 is there too: birth 7, clock 7, frozen 7, stood 7,
--                proposed 4, proposedAt 7, updated 7; and each negative level or 0, a double
--            the configuration, and what is charged to windows: sliding.lua, calendar.lua
--          clock is the server's time at the last call. All other times are running times.
-- KEYS[2] is the holder's record, for lease.lua only.
-- ARGV[1] is the configuration that the caller proposes, or '':
--          integers without a sign: 30 bytes for all limits, then 30 for each of 1 to 4 limits
--            deploy 7, overcommit 7, calls 4, revision 7, empty 1, target 4
--            burst 7, unit 7, step 7, code 1, per_ns 8
--          empty is 1 for StartEmpty, plus 2 if Unlimited is in force, or 4 for Blocked. A caller proposes a
--          switch as the only limit, and the bucket stores the limits beneath. A token is unit units, and a
--          tick adds step units. code is 0, 1 or 2 for a tick of 1 us, 1 ms or 1 s, plus 4 if the burst
--          follows from the limit. per_ns may exceed 2^53 and is only compared. A sliding window has code 8
--          or 12, and a calendar 16 or 20. For windows burst is the number of tokens, step the length, and
--          unit the offset of a calendar, in microseconds.
-- ARGV[2] is '' for the server's clock. Tests pass the time in microseconds.
-- ARGV[3] is the request that lease.lua describes. configure.lua reads only the ttl.
-- ARGV[4] is the operation of configure.lua, such as 'inspect'.
--
-- A level is in units of its limit, and negative if a charge is owed. held is in tokens, share in tokens per
-- microsecond and unit of weight, and all times, rest and width in microseconds. Numbers are little-endian,
-- and a double has 8 bytes. Whole numbers and their products are below 2^53.

-- Redis 4 lets a script read the time and write only if it replicates the writes in place of the script.
if redis.replicate_commands then redis.replicate_commands() end

-- encode and decode take formats as struct.pack does: '<', then 'd' for a double, 'I7' for a whole number of
-- 7 bytes, and 'c0' for a text at the end. The Lua code below replaces struct if the server has no struct
-- (miniredis), or one that cuts whole numbers to 32 bits.
local struct = rawget(_G, 'struct')
if not struct or struct.unpack('<I7', '\0\0\0\0\0\0\1') ~= 2^48 then
  struct = {}
  local ldexp, unpack, gmatch = math.ldexp, unpack, string.gmatch
  local function whole(x, size)
    local b = {}
    for k = 1, size do
      b[k] = x % 256
      x = floor(x / 256)
    end
    return string.char(unpack(b))
  end
  local function double(x)
    local sign, fraction, exponent = x < 0 and 128 or 0, math.frexp(x < 0 and -x or x)
    if fraction == 0 or exponent < -1021 then
      fraction, exponent = ldexp(fraction, exponent + 1074), 0
    else
      fraction, exponent = fraction * 2^53 - 2^52, exponent + 1022
    end
    return whole(fraction % 2^48, 6)
      .. string.char(exponent % 16 * 16 + floor(fraction / 2^48), sign + floor(exponent / 16))
  end
  function struct.pack(form, ...)
    local parts = {...}
    local k = 0
    for kind, size in gmatch(form, '(%a)(%d*)') do
      k = k + 1
      if kind == 'd' then
        parts[k] = double(parts[k])
      elseif kind == 'I' then -- other kinds are texts
        parts[k] = whole(parts[k], tonumber(size))
      end
    end
    return table.concat(parts)
  end
  function struct.unpack(form, text, at)
    local parts = {}
    at = at or 1
    for kind, size in gmatch(form, '(%a)(%d*)') do
      size = kind == 'd' and 8 or tonumber(size)
      local x, top = 0, string.byte(text, at + size - 1)
      for k = at + size - (kind == 'd' and 3 or 1), at, -1 do x = x * 256 + string.byte(text, k) end
      if kind == 'd' then
        local seventh = string.byte(text, at + 6)
        local exponent, fraction = top % 128 * 16 + floor(seventh / 16), seventh % 16 * 2^48 + x
        x = ldexp(exponent > 0 and fraction + 2^52 or fraction, max(exponent, 1) - 1075)
        if exponent == 2047 then x = fraction == 0 and math.huge or 0 / 0 end
        if top >= 128 then x = -x end
      end
      parts[#parts + 1] = x
      at = at + size
    end
    return unpack(parts)
  end
end

local encode, decode, byte = struct.pack, struct.unpack, string.byte

-- parse returns the configuration in `text`, or nil and the reason why the text is invalid. The scripts write
-- floor(x) as x - x % 1, ceil(x) as x + -x % 1, and min and max as comparisons, because function calls take
-- more time.
local function parse(text, struct, windowRules)
  local n = (#text - 30) / 30
  if n ~= 1 and n ~= 2 and n ~= 3 and n ~= 4 then
    return nil, 'configuration is not in the expected form'
  end
  local deploy, over, calls, revision, empty, target, burst, unit, step, code =
    struct.unpack('<I7I7I4I7I1I4I7I7I7I1', text)
  if deploy >= 2^52 or over >= 2^52 or calls > 1000000000 or revision >= 2^52 or empty > 5 then
    return nil, 'version, overcommit, calls or start is out of range'
  end
  if target < 1 or target > 3600000000 then return nil, 'target is out of range' end
  -- speed is the rate of the fastest limit, in tokens per microsecond. fills is the shortest time in which a
  -- limit refills its burst and the overcommit. least is the smallest burst plus the overcommit. coarse says
  -- whether the tick of a limit is above 1 us.
  local speed, fills, least, coarse = 0, math.huge, math.huge, false
  local c = {false, text = text, deploy = deploy, revision = revision, empty = empty % 2 == 1, target = target,
    calls = calls, n = n, speed = 0, fills = 0, least = 0, coarse = false, switch = (empty - empty % 2) / 2}
  for k = 1, n do
    if k > 1 then burst, unit, step, code = struct.unpack('<I7I7I7I1', text, 1 + 30 * k) end
    local most, tick, full, l = burst + over, 0, 0, nil
    if code > 7 then -- the limit is a window
      c.windows = c.windows or windowRules(struct)
      l = c.windows.limit(burst, most, unit, step, code)
      if not l then return nil, 'a window is out of range' end
      tick = step -- a statement of its own: miniredis assigns several names one by one
      unit, step = 1, burst
    else
      if burst < 1 or unit < 1 or step < 1 or most >= 2^52 or most * unit >= 2^52 or step >= 2^52 then
        return nil, 'a limit is zero or cannot be held exactly'
      end
      tick = code % 4
      tick = tick == 0 and 1 or tick == 1 and 1000 or 1000000
      if code > 6 or code == 3 or tick > 1 and step * tick >= 2^52 then
        return nil, 'a tick is out of range'
      end
      full = (burst * unit + step - 1) / step
      full = (full - full % 1) * tick
      if full > 3153600000000000 then return nil, 'a limit takes longer than 100 years to fill' end
    end
    local own = step / unit / tick
    if own > speed then speed = own end
    if most < least then least = most end
    coarse = coarse or not l and tick > 1
    if most / own < fills then fills = most / own end
    c[k] = l or {burst = burst, most = most, unit = unit, step = step, tick = tick, full = full,
      level = 0, rest = 0}
  end
  c.speed, c.fills, c.least, c.coarse = speed, fills, least, coarse
  return c
end

-- remember returns the running time until which the bucket is kept (6.14), the longest time for which a lease
-- may last from now (at least T), and whether a charge is owed. A limit that takes 100 years to fill starts
-- empty, so remember ignores it. Without a ring there are no leases.
local function remember(c, keep, now, ttl, frost, base, width, ring)
  local longest, owes = 0, false
  for k = 1, c.n do
    local l = c[k]
    local full = l.full
    if not l.kind and l.most > l.burst then -- the overcommit must refill too
      full = math.min((l.most * l.unit + l.step - 1) / l.step, 3153600000000000 / l.tick)
      full = (full - full % 1) * l.tick
    end
    if l.level < 0 and not l.kind then
      full, owes = full + math.floor((l.step - 1 - l.level) / l.step) * l.tick, true
    end
    if full > longest and l.full < 3153600000000000 then longest = full end
  end
  local left = ttl
  if ring then
    local s = base + 7 -- s becomes the last slice with an entry
    while s >= base and ring[s % 8 + 1] == 0 and ring[s % 8 + 9] == 0 do s = s - 1 end
    if s >= base and (s + 1) * width - now > ttl then left = (s + 1) * width - now end
  end
  longest = longest + ttl + left + frost
  if (c.empty or c.revision > 0) and longest < 2592000000000 then
    longest = 2592000000000 -- 30 days
  end
  if longest >= 2^52 then longest = 2^52 - 1 end -- the expiry must fit into requests
  longest = now + longest
  return longest > keep and longest or keep, left, owes
end
