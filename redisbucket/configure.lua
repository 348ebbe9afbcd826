-- configure.lua: inspect, set, set if absent, or reset one bucket. common.lua comes before it.
--
-- KEYS[1]  the bucket, a hash of two fields (see common.lua)
-- ARGV[1]  the operation: inspect, set, set-if-absent or reset
-- ARGV[2]  the configuration to set (see common.lua); '' for inspect and reset
-- ARGV[3]  the ttl to set, in microseconds; '' for inspect and reset
-- ARGV[4]  '' to use the server's clock, otherwise the time in microseconds (unsafe: see Config.ClientTime)
--
-- Reply: a flat array.
--   {'ok', exists, changed, ledger, activeWeight, epoch, counter, now, ttl, configuration, level, ..., next, ...}
--     flags 0 or 1, ledger and levels in whole tokens, now and ttl in microseconds; next is the microseconds until a level
--     has one whole token more, 0 for a full one; a bucket that does not exist answers {'ok', 0, 0}
--   {'invalid', why}, {'damaged', key, why}: nothing was written
--
-- Steps (design.md section 4): 1 to 3 as in lease.lua, then the operation, then the clip of step 2. An operation that
-- changes nothing writes nothing.

local op, mine, ttl, why = ARGV[1], nil, nil, nil
local sets = op == 'set' or op == 'set-if-absent'
if not sets and op ~= 'inspect' and op ~= 'reset' then return {'invalid', 'no such operation'} end
if sets then
  mine, why = parse(ARGV[2])
  if not mine then return {'invalid', why} end
  ttl = match(ARGV[3], '^%d+$') and int(ARGV[3])
  if not ttl or ttl < 2 * mine.target or ttl > TTL_MAX then return {'invalid', 'ttl is out of range'} end
end

-- Steps 1 to 3.
local now = clock(ARGV[4])
if not now then return {'invalid', 'the time is out of range'} end
local b
b, why = read(KEYS[1], mine)
if b == nil then return {'damaged', KEYS[1], why} end
if b then
  b.stored = b.c.text
  settle(b, now)
end

-- The operation.
local changed = false
if sets and not (op == 'set-if-absent' and b and b.c.revision > 0) then
  changed = true
  local deploy, revision = mine.deploy, 1
  if b then deploy, revision = max(deploy, b.c.deploy), b.c.revision + 1 end
  local versioned
  versioned, why = parse(format('%.0f %.0f ', deploy, revision) .. mine.tail)
  if not versioned then return {'invalid', why} end
  if b then
    adopt(b, versioned, ttl)
    clip(b)
  else
    b = install(now, versioned, ttl, max(now, 1))
  end
elseif op == 'reset' and b then
  changed = true
  fill(b)
  clip(b)
end
if not b then return {'ok', 0, 0} end

if changed then
  if not sound(b) then return {'damaged', KEYS[1], 'the state would be out of range'} end
  write(KEYS[1], b, expiry(b))
end
local answer = {'ok', 1, changed and 1 or 0, ledger(b), weights(b), b.epoch, b.counter, b.now, b.ttl, b.c.text}
for k = 1, b.c.n do
  local whole = floor(b.level[k] / b.c[k].unit)
  answer[10 + k], answer[10 + b.c.n + k] = whole, wait(b, k, whole + 1)
end
return answer
