-- common.lua: the rules that lease.lua and configure.lua share. Go puts one script together from four files, in this
-- order: common.lua (functions), open.lua (what a call finds), lease.lua or configure.lua, close.lua (what it leaves).
-- They are one chunk, and the bucket's state is in its locals, because Redis runs the whole chunk for every call:
-- a function costs its creation, a table its fields, and text its formatting, each time.
--
-- KEYS[1]  the bucket, a string: 35 numbers, the configuration, and level and rest of each limit but the first
--          birth epoch counter clock now frozen setAt keep ttl proposed proposedAt width gen moved updated contended share,
--          level and rest of the first limit, the tokens held in each of the 8 slots of the ring, the weights there.
--          clock is the server's time at the last call; all other times are the bucket's own: the server's at its birth, and
--          from then on the sum of the server's steps forward
-- KEYS[2]  the record of a holder: see lease.lua
-- ARGV[1]  the configuration that the caller proposes, '' for none: 5 numbers, and 7 for each of 1 to 4 limits
--          deploy revision overcommit empty target_ns, then tokens per_ns burst capacity unit step tick
--          tokens, per_ns and burst may exceed 2^53, are whole numbers of 8 bytes, and nothing here reads them;
--          capacity counts tokens, unit is units in a token, step is units added in one tick, tick is in microseconds
-- ARGV[2]  '' to use the server's clock, otherwise the time in microseconds (unsafe: see Config.ClientTime)
-- ARGV[3]  the request, 17 numbers: see lease.lua. configure.lua needs only the ttl of it.
-- ARGV[4]  the operation of configure.lua; nil for lease.lua
--
-- Units: levels in units of their limit; rest, ttl, width and all times in microseconds; held and weights in tokens and
-- in units of weight; share in tokens per microsecond and unit of weight.
--
-- A number is a double of 8 bytes, little end first: struct reads and writes it at a tenth of what text costs. Numbers
-- are whole and below 2^53 (share, and a record's allowance, are not), and no product of two whole numbers passes
-- 2^53. Where one must become text it goes through %.0f: tostring and '..' keep 14 digits.
--
-- The rules are those of lease.Bucket (bucket.go, bucket_settle.go, bucket_change.go, bucket_ttl.go, ring.go, fair.go), which
-- says why each of them is as it is. Both are tested to agree to the last bit.

if redis.replicate_commands then redis.replicate_commands() end -- Redis 3.2 to 4: replicate effects, for TIME

local floor, ceil, min, max, format = math.floor, math.ceil, math.min, math.max, string.format

-- encode and decode are struct.pack and struct.unpack, for the forms in use: '<', a 'd' for each number, and 'c0' for a
-- text at the end. A server without them (miniredis) gets the same bytes slowly.
local struct = rawget(_G, 'struct')
local encode, decode
if struct then
  encode, decode = struct.pack, struct.unpack
else
  local byte, char, spread = string.byte, string.char, unpack
  local function number(x)
    local fraction, exponent = math.frexp(x < 0 and -x or x)
    exponent = exponent + 1022
    if x == 0 then
      fraction, exponent = 0, 0
    elseif exponent < 1 then
      fraction, exponent = math.ldexp(x < 0 and -x or x, 1074), 0
    else
      fraction = fraction * 2^53 - 2^52
    end
    local b = {}
    for k = 1, 6 do
      b[k] = fraction % 256
      fraction = floor(fraction / 256)
    end
    return char(b[1], b[2], b[3], b[4], b[5], b[6], exponent % 16 * 16 + fraction, (x < 0 and 128 or 0) + floor(exponent / 16))
  end
  encode = function(_, ...)
    local parts = {...}
    for i = 1, #parts do
      if type(parts[i]) == 'number' then parts[i] = number(parts[i]) end
    end
    return table.concat(parts)
  end
  decode = function(form, text, at)
    local parts = {}
    at = at or 1
    for i = 1, #form - 1 do
      local b1, b2, b3, b4, b5, b6, b7, b8 = byte(text, at, at + 7)
      local exponent = b8 % 128 * 16 + floor(b7 / 16)
      local fraction = (((((b7 % 16 * 256 + b6) * 256 + b5) * 256 + b4) * 256 + b3) * 256 + b2) * 256 + b1
      local x
      if exponent == 2047 then
        x = fraction == 0 and math.huge or 0 / 0
      elseif exponent == 0 then
        x = math.ldexp(fraction, -1074)
      else
        x = math.ldexp(fraction + 2^52, exponent - 1075)
      end
      parts[i], at = b8 < 128 and x or -x, at + 8
    end
    return spread(parts)
  end
end

-- parse reads and checks a configuration. A second result says what is wrong. Where x is not negative, x - x % 1 is its
-- whole part, and x % 1 is 0 for whole numbers alone: for a fraction, an infinity and nan it is not.
local function parse(text)
  local n = (#text - 40) / 56
  if n ~= 1 and n ~= 2 and n ~= 3 and n ~= 4 then return nil, 'configuration is not in the expected form' end
  local deploy, revision, over, empty, target = decode('<ddddd', text)
  if not (deploy % 1 + revision % 1 + over % 1 + target % 1 == 0) or deploy < 0 or deploy >= 2^52 or revision < 0
      or revision >= 2^52 or over < 0 or over >= 2^52 or empty ~= 0 and empty ~= 1 then
    return nil, 'version, overcommit or start is out of range'
  end
  target = target / 1000
  target = target - target % 1
  if target < 1 or target > 3600000000 then return nil, 'target is out of range' end
  local c = {false, text = text, deploy = deploy, revision = revision, empty = empty == 1, target = target, n = n, speed = 0, least = 0}
  local speed, least = 2^53, 2^53
  for k = 1, n do
    local burst, unit, step, tick = decode('<dddd', text, 9 + 56 * k)
    local most = burst + over
    if not (burst % 1 + unit % 1 + step % 1 == 0) or burst < 1 or unit < 1 or step < 1 or most >= 2^52
        or most * unit >= 2^52 or step >= 2^52 then
      return nil, 'a limit is zero or cannot be held exactly'
    end
    if tick ~= 1 and (tick ~= 1000 and tick ~= 1000000 or step * tick >= 2^52) then return nil, 'a tick is out of range' end
    local full = (burst * unit + step - 1) / step
    full = (full - full % 1) * tick
    if full > 3153600000000000 then return nil, 'a limit takes longer than 100 years to fill' end
    local own = step / unit / tick
    if own < speed then speed = own end
    if burst < least then least = burst end
    c[k] = {burst = burst, most = most, unit = unit, step = step, tick = tick, full = full, level = 0, rest = 0}
  end
  c.speed, c.least = speed, least -- of the slowest limit, in tokens per microsecond, as a double; the smallest burst
  return c
end

-- capacity is how far limit l may fill while held tokens are out: B, or B + E - O where that is less.
local function capacity(l, held)
  local tokens = l.most - held
  if tokens > l.burst then tokens = l.burst elseif tokens < 0 then tokens = 0 end
  return tokens * l.unit
end

-- brim deals with a level that is room units below the most it may be: a remainder that already reaches it counts.
local function brim(l, room)
  if room <= 0 or room < l.step and room * l.tick <= l.step * l.rest then
    if room > 0 then l.level = l.level + room end
    l.rest = 0
  end
end

-- refill is step 2 for the interval (from, to], during which the ledger does not change.
local function refill(c, from, to, held)
  if to <= from then return end
  for k = 1, c.n do
    local l = c[k]
    local room = capacity(l, held) - l.level
    if room <= 0 then
      l.rest = 0
    else
      local elapsed = to - from + l.rest
      local ticks, needed = elapsed / l.tick, (room + l.step - 1) / l.step
      ticks = ticks - ticks % 1
      if ticks >= needed - needed % 1 then
        l.level, l.rest = l.level + room, 0
      else
        l.level, l.rest = l.level + ticks * l.step, elapsed - ticks * l.tick
        brim(l, room - ticks * l.step)
      end
    end
  end
end

-- wait is the microseconds until limit l has reached n tokens, or its burst, if nobody draws; frozen is how long nothing
-- refills.
local function wait(l, n, frozen)
  local missing = (n < l.burst and n or l.burst) * l.unit - l.level
  if missing <= 0 then return 0 end
  local ticks = (missing + l.step - 1) / l.step
  return (ticks - ticks % 1) * l.tick - l.rest + frozen
end

-- remember is until when the bucket must be remembered: a forgotten bucket looks like a full one. It outlives every lease
-- by a T, those too that were granted under a longer one; frost is how long nothing refills. The second result is how long
-- the longest lease may last that is out, at least a T.
local function remember(c, keep, now, ttl, frost, base, width, held, weights)
  local longest = 0
  for k = 1, c.n do
    if c[k].full > longest then longest = c[k].full end
  end
  local s = base + 7 -- the last slice with an entry
  while s >= base and held[s % 8 + 1] == 0 and weights[s % 8 + 1] == 0 do s = s - 1 end
  local left = (s + 1) * width - now
  if s < base or left < ttl then left = ttl end
  longest = longest + ttl + left + frost
  if (c.empty or c.revision > 0) and longest < 2592000000000 then longest = 2592000000000 end -- a month
  longest = now + longest
  return longest > keep and longest or keep, left
end
