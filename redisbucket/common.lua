-- common.lua: what lease.lua and configure.lua share. Go puts this text before each of them.
--
-- b is the bucket. Its fields, and the two texts of its hash:
--   c  configuration: "deploy revision overcommit empty target_ns;tokens per_ns burst capacity unit step tick;..."
--      tokens, per_ns and burst may exceed 2^53 and stay text; capacity counts tokens, unit is units in a token,
--      step is units added in one tick, tick is in microseconds.
--   s  everything that a call changes: "birth epoch counter created now frozen ttl width gen moved landing updated
--      contended share|level rest ...|slot held weight ..."
--      level in units; rest, ttl, width and all times in microseconds; held in tokens; share in tokens per
--      microsecond and unit of weight. Only slots of the ring that are not empty are written.
--
-- Numbers are whole and below 2^53 (share and a record's allowance are doubles). No product of two whole numbers
-- passes 2^53. Numbers become text with %.0f, never with tostring or '..', which keep only 14 digits.
--
-- The rules are those of lease.Bucket (bucket.go, bucket_settle.go, bucket_change.go, ring.go, fair.go), which
-- says why each of them is as it is. Both are tested to agree to the last bit.

if redis.replicate_commands then redis.replicate_commands() end -- Redis 3.2 to 4: replicate effects, for TIME

local find, match, gmatch, gsub, format, rep = string.find, string.match, string.gmatch, string.gsub, string.format, string.rep
local floor, ceil, min, max, tonumber = math.floor, math.ceil, math.min, math.max, tonumber

local UNITS = 4503599627370496 -- 2^52, above every count that a request or a limit may carry
local WHOLE = 9007199254740992 -- 2^53, where doubles stop being exact
local TTL_MAX = 3600000000
local WEIGHT_MAX = 1048576
local FULL_MAX = 3153600000000000 -- 100 years
local MONTH = 2592000000000
local SLICES = 8

-- int reads digits; what is too long for one Lua in use (above 2^63) becomes as large as any check refuses.
local function int(text) return tonumber(text) or WHOLE end

-- double reads what %.17g wrote. One Lua in use reads an exponent only after a point.
local function double(text)
  return tonumber(text) or tonumber((gsub(text, 'e', '.0e', 1)))
end

-- clock is the server's time in microseconds; given is the caller's, or '' to ask the server.
local function clock(given)
  if given == '' then
    local t = redis.call('TIME')
    return int(t[1]) * 1000000 + int(t[2])
  end
  if not find(given, '^%d+$') then return nil end
  local now = int(given)
  if now < UNITS then return now end
end

-- parse reads and checks a configuration. A second result says what is wrong.
local function parse(text)
  local deploy, revision, tail, over, empty, target, limits =
    match(text, '^(%d+) (%d+) ((%d+) ([01]) (%d+)(;[%d ;]+))$')
  if not deploy then return nil, 'configuration is not in the expected form' end
  local c = {text = text, tail = tail, deploy = int(deploy), revision = int(revision), over = int(over),
    empty = empty == '1', target = floor(int(target) / 1000)}
  if c.deploy >= UNITS or c.revision >= UNITS or c.over >= UNITS then return nil, 'version or overcommit is not below 2^52' end
  if c.target < 1 or c.target > TTL_MAX then return nil, 'target is out of range' end
  local n = 0
  for limit in gmatch(limits, ';([^;]*)') do
    local burst, unit, step, tick = match(limit, '^%d+ %d+ %d+ (%d+) (%d+) (%d+) (%d+)$')
    if not burst then return nil, 'a limit is not in the expected form' end
    burst, unit, step, tick = int(burst), int(unit), int(step), int(tick)
    n = n + 1
    c[n] = {burst = burst, unit = unit, step = step, tick = tick}
    if n > 4 then return nil, 'more than 4 limits' end
    if burst < 1 or unit < 1 or step < 1 or burst + c.over >= UNITS or (burst + c.over) * unit >= UNITS or step >= UNITS then
      return nil, 'a limit is zero or cannot be held exactly'
    end
    if tick ~= 1 and (tick ~= 1000 and tick ~= 1000000 or step * tick >= UNITS) then return nil, 'a tick is out of range' end
    if floor((burst * unit + step - 1) / step) * tick > FULL_MAX then return nil, 'a limit takes longer than 100 years to fill' end
  end
  c.n = n
  return c
end

-- newer reports whether the version of configuration c wins over that of d.
local function newer(c, d)
  return c.deploy > d.deploy or c.deploy == d.deploy and c.revision > d.revision
end

local function ledger(b)
  local h = b.held
  return h[1] + h[2] + h[3] + h[4] + h[5] + h[6] + h[7] + h[8]
end

local function weights(b)
  local w = b.weight
  return w[1] + w[2] + w[3] + w[4] + w[5] + w[6] + w[7] + w[8]
end

-- read fetches the bucket: false if there is none, nil and a reason if what is stored cannot be trusted.
-- mine is the caller's configuration, which is not parsed a second time where the same text is stored.
local function read(key, mine)
  local got = redis.pcall('HMGET', key, 'c', 's')
  if got.err then return nil, got.err end
  if not got[1] and not got[2] then
    if redis.call('EXISTS', key) == 0 then return false end
    return nil, 'both fields are missing'
  end
  if not got[1] or not got[2] then return nil, 'a field is missing' end

  local c, why = mine, nil
  if not mine or mine.text ~= got[1] then
    c, why = parse(got[1])
    if not c then return nil, why end
  end

  local birth, epoch, counter, created, now, frozen, ttl, width, gen, moved, landing, updated, contended, share, levels, ring =
    match(got[2], '^(%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%-?%d+) ([%d.e+-]+)|([%d ]+)|([%d ]*)$')
  if not birth then return nil, 'the state is not in the expected form' end
  local b = {c = c, birth = int(birth), epoch = int(epoch), counter = int(counter), created = int(created),
    now = int(now), frozen = int(frozen), ttl = int(ttl), width = int(width), gen = int(gen),
    moved = int(moved), landing = int(landing), updated = int(updated), contended = int(contended),
    share = double(share), level = {}, rest = {},
    held = {0, 0, 0, 0, 0, 0, 0, 0}, weight = {0, 0, 0, 0, 0, 0, 0, 0}}
  if max(b.birth, b.epoch, b.counter, b.created, -b.created, b.now, b.gen, b.moved, b.landing, b.updated,
      b.contended, -b.contended) >= WHOLE then
    return nil, 'a number is not below 2^53'
  end
  if b.now >= UNITS or b.frozen > b.now + TTL_MAX then return nil, 'a time is out of range' end
  if b.ttl < 2 or b.ttl > TTL_MAX or b.width < 1 or b.width > TTL_MAX then return nil, 'a duration is out of range' end
  if not b.share or not (b.share > 0 and b.share < WHOLE) then return nil, 'the share is out of range' end

  local n = 0
  for level, rest in gmatch(levels, '(%d+) (%d+)') do
    n = n + 1
    local l = c[n]
    level, rest = int(level), int(rest)
    if not l or level > l.burst * l.unit or rest >= l.tick then return nil, 'a level is out of range' end
    b.level[n], b.rest[n] = level, rest
  end
  if n ~= c.n or not find(levels, n == 1 and '^%d+ %d+$' or '^%d+ %d+' .. rep(' %d+ %d+', n - 1) .. '$') then
    return nil, 'the levels are not those of the limits'
  end

  local length = 0
  for slot, held, weight in gmatch(ring, ' ([0-7]) (%d+) (%d+)') do
    length = length + 4 + #held + #weight
    local i = int(slot) + 1
    if b.held[i] ~= 0 or b.weight[i] ~= 0 then return nil, 'a slice is stored twice' end
    b.held[i], b.weight[i] = int(held), int(weight)
  end
  if length ~= #ring or not (ledger(b) < UNITS and weights(b) < UNITS) then return nil, 'the ledger is out of range' end
  b.base = floor(b.now / b.width)
  return b
end

-- widthFor is the slice width for a ttl; base follows from now and width and is not stored.
local function widthFor(ttl) return floor((ttl + SLICES - 2) / (SLICES - 1)) end

-- move starts a new numbering of slices and puts everything that is live into its last one.
local function move(b, old, now, width)
  local tokens, weight = ledger(b), weights(b)
  b.width, b.base, b.gen, b.moved = width, floor(now / width), b.gen + 1, old
  b.landing = b.base + SLICES - 1
  b.held, b.weight = {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}
  b.held[b.landing % SLICES + 1], b.weight[b.landing % SLICES + 1] = tokens, weight
end

-- lastEnds is when the last slice with an entry ends; 0 where there is none.
local function lastEnds(b)
  local last = 0
  for s = b.base, b.base + SLICES - 1 do
    if b.held[s % SLICES + 1] ~= 0 or b.weight[s % SLICES + 1] ~= 0 then last = (s + 1) * b.width end
  end
  return last
end

-- fit adapts the ring to a changed ttl, which grew or not; the expiry of an entry never moves earlier.
local function fit(b, grew)
  local width = widthFor(b.ttl)
  if width < b.width and (floor(b.now / width) + SLICES) * width < lastEnds(b) then width = b.width end
  if width ~= b.width or grew then move(b, b.now, b.now, width) end
end

-- capacity is how far limit l may fill while held tokens are out: B, or B + E - O where that is less.
local function capacity(b, l, held)
  return max(0, min(l.burst, l.burst + b.c.over - held)) * l.unit
end

-- brim deals with level k, which is room units below the most it may be: a remainder that already reaches it counts.
local function brim(b, k, room)
  local l = b.c[k]
  if room <= 0 or room < l.step and room * l.tick <= l.step * b.rest[k] then
    b.level[k], b.rest[k] = b.level[k] + max(room, 0), 0
  end
end

-- refill is step 2 for the interval (from, to], during which the ledger does not change.
local function refill(b, from, to)
  from = max(from, b.frozen)
  if to <= from then return end
  local held = ledger(b)
  for k = 1, b.c.n do
    local l = b.c[k]
    local room = capacity(b, l, held) - b.level[k]
    if room <= 0 then
      b.rest[k] = 0
    else
      local elapsed = to - from + b.rest[k]
      local ticks = floor(elapsed / l.tick)
      if ticks >= floor((room + l.step - 1) / l.step) then
        b.level[k], b.rest[k] = b.level[k] + room, 0
      else
        b.level[k], b.rest[k] = b.level[k] + ticks * l.step, elapsed - ticks * l.tick
        brim(b, k, room - ticks * l.step)
      end
    end
  end
end

-- stepBack is step 1 for a clock that went back.
local function stepBack(b, now)
  local back = b.now - now
  move(b, b.now, now, b.width)
  b.frozen = b.frozen > b.now and b.frozen - back or 0
  b.created, b.contended, b.now = b.created - back, b.contended - back, now
end

-- settle is steps 1 to 3; it returns the time that the levels stood at.
local function settle(b, now)
  if now < b.now then stepBack(b, now) end
  local from = b.now
  local at, last, ends = from, floor(from / b.width) + SLICES, (b.base + 1) * b.width
  while ends <= now and b.base < last do
    local slot = b.base % SLICES + 1
    if b.held[slot] ~= 0 then -- refill with the old ledger up to the moment at which this slice ran out
      refill(b, at, ends)
      at = ends
    end
    b.held[slot], b.weight[slot] = 0, 0
    b.base = b.base + 1
    ends = (b.base + 1) * b.width
  end
  b.base = floor(now / b.width)
  refill(b, at, now)
  b.now = now
  return from
end

-- clip ends step 2.
local function clip(b)
  local held = ledger(b)
  for k = 1, b.c.n do
    b.level[k] = min(b.level[k], capacity(b, b.c[k], held))
  end
end

-- fresh is the level of a limit that starts full; while a loss is waited out, nothing does.
local function fresh(b, l) return b.now < b.frozen and 0 or l.burst * l.unit end

-- fill gives every level what a new bucket would have.
local function fill(b)
  for k = 1, b.c.n do
    b.level[k], b.rest[k] = b.c.empty and 0 or fresh(b, b.c[k]), 0
  end
end

-- rate is that of the slowest limit, in tokens per microsecond, as a double.
local function rate(c)
  local r = c[1].step / c[1].unit / c[1].tick
  for k = 2, c.n do r = min(r, c[k].step / c[k].unit / c[k].tick) end
  return r
end

-- install makes a new bucket. Its birth tells its records from those that an earlier bucket of this key left behind;
-- the epoch cannot, because a failover may move it back to an earlier bucket's.
local function install(now, c, ttl, epoch)
  local width = widthFor(ttl)
  local b = {c = c, birth = now, epoch = epoch, counter = 0, created = now, now = now, frozen = 0, ttl = ttl, width = width,
    base = floor(now / width), gen = 0, moved = 0, landing = 0, updated = now, contended = 0, share = rate(c),
    level = {}, rest = {}, held = {0, 0, 0, 0, 0, 0, 0, 0}, weight = {0, 0, 0, 0, 0, 0, 0, 0}}
  fill(b)
  return b
end

-- muldiv is floor(x*y/z) for x < z, bit by bit, so that no product passes 2^53.
local function muldiv(x, y, z)
  local quotient, remainder, bit = 0, 0, 2251799813685248 -- 2^51
  while bit >= 1 do
    quotient, remainder = 2 * quotient, 2 * remainder
    if remainder >= z then quotient, remainder = quotient + 1, remainder - z end
    if y >= bit then
      y, remainder = y - bit, remainder + x
      if remainder >= z then quotient, remainder = quotient + 1, remainder - z end
    end
    bit = bit / 2
  end
  return quotient
end

-- reshape changes the limits of a settled bucket: a raised burst keeps the level, a lowered one what was used,
-- a limit that is new starts full.
local function reshape(b, c)
  local old = b.c
  b.c = c
  b.share = b.share * (rate(c) / rate(old))
  for k = 1, c.n do
    local was, is = old[k], c[k]
    if was then
      local level = b.level[k]
      if was.burst > is.burst then level = max(0, level - (was.burst - is.burst) * was.unit) end
      local whole = floor(level / was.unit)
      b.level[k] = whole * is.unit + muldiv(level - whole * was.unit, is.unit, was.unit)
    else
      b.level[k] = fresh(b, is)
    end
    b.rest[k] = 0
  end
  for k = c.n + 1, old.n do b.level[k], b.rest[k] = nil, nil end
end

-- adopt takes over configuration c where its version is higher, and a longer ttl at once.
local function adopt(b, c, ttl)
  local old = b.ttl
  if newer(c, b.c) then
    b.ttl = ttl
    reshape(b, c)
  else
    b.ttl = max(old, ttl)
  end
  fit(b, b.ttl > old)
end

-- wait is the microseconds until level k has reached n tokens, or its burst, if nobody draws.
local function wait(b, k, n)
  local l = b.c[k]
  local missing = min(n, l.burst) * l.unit - b.level[k]
  if missing <= 0 then return 0 end
  return floor((missing + l.step - 1) / l.step) * l.tick - b.rest[k] + max(0, b.frozen - b.now)
end

-- expiry is how long the bucket must be remembered, in microseconds: a forgotten bucket looks like a full one. It
-- outlives every lease by a T, those too that were granted under a longer one.
local function expiry(b)
  local longest = 0
  for k = 1, b.c.n do
    local l = b.c[k]
    longest = max(longest, floor((l.burst * l.unit + l.step - 1) / l.step) * l.tick)
  end
  longest = longest + b.ttl + max(b.ttl, lastEnds(b) - b.now) + max(0, b.frozen - b.now)
  if b.c.empty or b.c.revision > 0 then longest = max(longest, MONTH) end
  return longest
end

-- milliseconds is a key's time to live for us microseconds, and a second more: it may be forgotten late, never early.
local function milliseconds(us) return format('%.0f', ceil(us / 1000) + 1000) end

-- sound is the last look before the first write: nothing that read would refuse is ever stored.
local function sound(b)
  for i = 1, SLICES do
    if not (b.held[i] >= 0 and b.weight[i] >= 0) then return false end
  end
  return b.share > 0 and b.share < WHOLE and b.epoch < WHOLE and b.counter < WHOLE
end

-- write stores the bucket, and the record where one is given (its text, and the microseconds that it lives).
-- The bucket goes first: if the server refuses the record half way, tokens are lost and none is drawn twice.
local function write(key, b, life, record, text, recordLife)
  local levels = format('%.0f %.0f', b.level[1], b.rest[1])
  for k = 2, b.c.n do levels = levels .. format(' %.0f %.0f', b.level[k], b.rest[k]) end
  local ring = ''
  for i = 1, SLICES do
    if b.held[i] ~= 0 or b.weight[i] ~= 0 then
      ring = ring .. format(' %.0f %.0f %.0f', i - 1, b.held[i], b.weight[i])
    end
  end
  local state = format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.17g|%s|%s',
    b.birth, b.epoch, b.counter, b.created, b.now, b.frozen, b.ttl, b.width, b.gen, b.moved, b.landing, b.updated,
    b.contended, b.share, levels, ring)
  local expires, recordExpires = milliseconds(life), record and milliseconds(recordLife)
  if b.c.text == b.stored then
    redis.call('HSET', key, 's', state)
  else
    redis.call('HMSET', key, 'c', b.c.text, 's', state)
  end
  if record then redis.call('SET', record, text, 'PX', recordExpires) end
  redis.call('PEXPIRE', key, expires)
end
