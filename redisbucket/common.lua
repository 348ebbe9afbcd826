-- common.lua: the layout of the stored values, and the functions that all calls share. protocol.Bucket
-- computes the same in Go, to the last bit.
--
-- Go joins the files into one script: sliding.lua, calendar.lua, window.lua, bucket.lua and common.lua
-- (functions), open.lua (reads the bucket), change.lua (lost state, changed limits, T), lease.lua or
-- configure.lua, and close.lua (writes). draw.lua precedes lease.lua, and is the only other file in the
-- script of draws.lua. The script's local variables hold the bucket's state. Redis runs the whole script for
-- every call, and each function that it creates, each outer name in a function, each table field, each byte
-- of text and each formatted number takes time.
--
-- KEYS[1]  the bucket, a string
--          'y'; a byte, the layout's number and 8 times the form; and integers without a sign, with the bytes of
--          each. The form is one less than the number of limits, and more for each part that some buckets leave
--          out, because its numbers follow from the others (section 3.9).
--            epoch 7, counter 6, now 7, ttl 4, spent 6, denied 6
--            level 7, rest 3 of the first limit; of a window see window.lua
--            8   of a bucket in use: share, a double; width 4, keep 7, moved 7, contended 7, idle 7; the tokens
--                held in each of the 8 slots of the ring, 7 each, and the weights there, 7 each
--            level 7, rest 3 of each other limit
--            4   setAt 7, which is epoch - 1 otherwise
--            16  of a bucket with a past, which is in use too: birth 7, clock 7, frozen 7, stood 7,
--                proposed 4, proposedAt 7, updated 7; and each negative level or 0, a double
--            the configuration, and what is charged to windows: sliding.lua, calendar.lua
--          clock is the server's time at the last call. All other times are the bucket's own: the
--          server's time at its birth plus all forward steps of the server's clock since.
-- KEYS[2]  lease.lua only: the record of one holder, see lease.lua.
-- ARGV[1]  the configuration that the caller proposes, '' for none.
--          integers without a sign: 30 bytes for all limits, then 30 for each of 1 to 4 limits, of these bytes:
--            deploy 7, overcommit 7, calls 4, revision 7, empty 1, target 4
--          empty is 1 for a start without tokens, plus 2 if Unlimited suspends the limits, or 4 if Blocked
--          does: a caller proposes that as the only limit, and the bucket stores the limits beneath it
--            burst 7, unit 7, step 7, code 1, per_ns 8
--          A token is unit units, and a tick adds step units. code is 0, 1 or 2 for a tick of 1 us, 1 ms or
--          1 s, plus 4 if the burst follows from the limit. per_ns may exceed 2^53 and is only compared. A
--          sliding window has code 8, a calendar 16, plus 4 likewise. burst is the tokens of a window, unit
--          the offset of a calendar, and step the length of both, in microseconds
-- ARGV[2]  '' to use the server's clock, otherwise, in tests, the time in microseconds.
-- ARGV[3]  the request, see lease.lua; configure.lua reads the ttl only.
-- ARGV[4]  configure.lua only: the operation, such as 'inspect'.
--
-- Units: a level is in units of its limit, and negative if a charge is owed. rest, ttl, width and all times
-- are in microseconds, held in tokens, and share in tokens per microsecond and unit of weight.
--
-- Numbers are little-endian, a double in 8 bytes. All numbers except share, a record's allowance and a
-- headroom, and all products of whole numbers are whole and below 2^53. A number becomes text by %d or %.0f,
-- because tostring and '..' keep only 14 digits.

-- Redis 3.2 to 4: replicate the writes and not the script, so that the script may read the time.
if redis.replicate_commands then redis.replicate_commands() end

-- encode and decode take the formats of struct.pack and struct.unpack: '<', then 'd' (a double), 'I7' (a
-- whole number of 7 bytes), and at the end 'c0' (a text). If the server's struct is missing (miniredis) or
-- cuts whole numbers to 32 bits, slower Lua code replaces it.
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

-- parse reads and checks a configuration. parse returns nil and the reason if the configuration is invalid.
-- In this file x % 1 is 0 only for a whole number, x - x % 1 is floor(x), and x + -x % 1 is ceil(x).
-- Comparisons are written out because a call of min, max or floor costs more.
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
  -- speed is the rate of the fastest limit, in tokens per microsecond. fills is the least time in which a
  -- limit refills its burst and the overcommit. least is the least sum of a burst and the overcommit. coarse
  -- says that a limit's tick is above 1 us.
  local speed, fills, least, coarse = 0, math.huge, math.huge, false
  local c = {false, text = text, deploy = deploy, revision = revision, empty = empty % 2 == 1, target = target,
    calls = calls, n = n, speed = 0, fills = 0, least = 0, coarse = false, switch = (empty - empty % 2) / 2}
  for k = 1, n do
    if k > 1 then burst, unit, step, code = struct.unpack('<I7I7I7I1', text, 1 + 30 * k) end
    local most, tick, full, l = burst + over, 0, 0, nil
    if code > 7 then -- a window, with functions in c.windows
      c.windows = c.windows or windowRules(struct)
      l = c.windows.limit(burst, most, unit, step, code)
      if not l then return nil, 'a window is out of range' end
      tick = step -- a separate statement, because miniredis assigns names one by one
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

-- remember returns the end of the time for which the bucket must be kept (section 6.14), the longest time
-- that a lease may still last, at least T, and whether anything is owed. A limit that takes 100 years to fill
-- starts empty, so it may be forgotten. If ring is nil, there are no leases.
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
    local s = base + 7 -- the last slice with an entry
    while s >= base and ring[s % 8 + 1] == 0 and ring[s % 8 + 9] == 0 do s = s - 1 end
    if s >= base and (s + 1) * width - now > ttl then left = (s + 1) * width - now end
  end
  longest = longest + ttl + left + frost
  if (c.empty or c.revision > 0) and longest < 2592000000000 then
    longest = 2592000000000 -- 30 days
  end
  if longest >= 2^52 then longest = 2^52 - 1 end -- a request must be able to repeat the expiry
  longest = now + longest
  return longest > keep and longest or keep, left, owes
end
