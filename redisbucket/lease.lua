-- lease.lua: one lease call for one key. common.lua comes before it.
--
-- KEYS[1]  the bucket, a hash of two fields (see common.lua)
-- KEYS[2]  the record of this holder, a string in the same slot:
--          "birth epoch seq gen slice ends held weight granted void last allowance"
-- ARGV[1]  the configuration that the caller proposes (see common.lua)
-- ARGV[2]  "ttl seq remaining returned refund debt want need waiting weight epoch counter heard": 13 whole numbers,
--          ttl (proposed) and heard (last heard, 0 for none) in microseconds, counts in tokens
-- ARGV[3]  '' to use the server's clock, otherwise the time in microseconds (unsafe: see Config.ClientTime)
--
-- Reply: a flat array.
--   {'ok', seq, granted, void, delay, retryAfter, epoch, counter, activeWeight, contended, expiry, now, ledger, ttl,
--     configuration, level, ...}  configuration is '' where it is the caller's; durations and now in
--     microseconds, levels in whole tokens, flags 0 or 1
--   {'stale'}             seq is below one already executed; nothing was written
--   {'invalid', why}      an argument is out of range; nothing was written
--   {'damaged', key, why} what is stored cannot be trusted; nothing was written
--
-- Steps (design.md section 4; the order is what makes the bound exact):
--   1  the time, once; a clock that went back
--   2  refill with the OLD ledger, piecewise where holdings ran out; then lost state, configuration and the clip
--   3  forget holdings whose time has passed
--   4  a seq that was executed answers the stored grant again; a lower one is refused
--   5  the report: known or void
--   6  returned, refund, debt
--   7  the grant

-- Every check comes before the first write: a script that fails half way keeps what it wrote.
local mine, why = parse(ARGV[1])
if not mine then return {'invalid', why} end
local ttl, seq, remaining, returned, refund, debt, want, need, waiting, weight, epoch, counter, heard =
  match(ARGV[2], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
if not ttl then return {'invalid', 'the request is not 13 whole numbers'} end
ttl, seq, remaining, returned, refund, debt, want, need, waiting, weight, epoch, counter, heard =
  int(ttl), int(seq), int(remaining), int(returned), int(refund), int(debt), int(want),
  int(need), int(waiting), int(weight), int(epoch), int(counter), int(heard)
if max(seq, remaining, returned, refund, debt, want, waiting, epoch, counter) >= UNITS then
  return {'invalid', 'a number of the request is not below 2^52'}
end
if seq < 1 then return {'invalid', 'seq is below 1'} end
if need > want then return {'invalid', 'need is above want'} end
if weight < 1 or weight > WEIGHT_MAX then return {'invalid', 'weight is out of range'} end
if ttl < 2 * mine.target or ttl > TTL_MAX or heard > TTL_MAX then return {'invalid', 'a ttl is out of range'} end

-- Step 1.
local now = clock(ARGV[3])
if not now then return {'invalid', 'the time is out of range'} end
local b
b, why = read(KEYS[1], mine)
if b == nil then return {'damaged', KEYS[1], why} end

-- place is where an entry goes that lasts until now + ttl.
local function place()
  return min(floor((b.now + b.ttl) / b.width), b.base + SLICES - 1)
end

-- freeze empties every level and lets none refill for d microseconds.
local function freeze(d)
  for k = 1, b.c.n do b.level[k], b.rest[k] = 0, 0 end
  b.frozen = max(b.frozen, b.now + d)
end

-- Steps 1 to 3, then the changes of step 2.
if not b then
  b = install(now, mine, ttl, epoch > 0 and max(now, epoch + 1) or max(now, 1))
  if epoch > 0 then freeze(max(ttl, heard)) end -- the caller proves that a bucket was lost
else
  b.stored = b.c.text
  settle(b, now)
  local longest = max(b.ttl, heard)
  if epoch > 0 then
    if epoch > b.epoch or epoch == b.epoch and counter > b.counter then -- a failover lost writes
      freeze(longest)
      b.epoch, b.counter = epoch + 1, counter -- what the records say was overtaken, so none of them counts
    elseif epoch < b.epoch and b.now - b.created < longest then -- a bucket was lost, and somebody who did not know made this one
      freeze(longest)
    end
  end
  adopt(b, mine, ttl)
end
clip(b)
b.counter = b.counter + 1

-- The record, if it is of this bucket and epoch and its slice is still in the ring. One move of the ring is followed.
local record = redis.pcall('GET', KEYS[2])
if type(record) == 'table' then return {'damaged', KEYS[2], record.err} end
local r, live = nil, false
if record then
  local birth, repoch, rseq, gen, slice, ends, held, rweight, granted, void, last, allowance =
    match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([01]) (%d+) ([%d.e+-]+)$')
  if not birth then return {'damaged', KEYS[2], 'the record is not in the expected form'} end
  r = {seq = int(rseq), slice = int(slice), held = int(held), weight = int(rweight),
    granted = int(granted), void = int(void), last = int(last), allowance = double(allowance)}
  gen, ends = int(gen), int(ends)
  if max(int(birth), int(repoch), r.seq, gen, r.slice, ends, r.held, r.weight, r.granted, r.last) >= WHOLE
      or not r.allowance or not (r.allowance >= -1 and r.allowance < WHOLE) then
    return {'damaged', KEYS[2], 'a number of the record is out of range'}
  end
  if int(birth) == b.birth and int(repoch) == b.epoch then
    if gen == b.gen then
      live = r.slice >= b.base
    elseif gen == b.gen - 1 and ends > b.moved then
      r.slice = b.landing
      live = r.slice >= b.base
    end
    local slot = r.slice % SLICES + 1
    if live and (r.slice > b.base + SLICES - 1 or b.held[slot] < r.held or b.weight[slot] < r.weight) then
      return {'damaged', KEYS[2], 'the record and the ledger of the bucket disagree'}
    end
  end
end

-- The view of the tightest limit, as doubles; see fair.go.
local speed = rate(b.c)
local function tightest()
  local level, burst = b.level[1] / b.c[1].unit, b.c[1].burst
  for k = 2, b.c.n do
    level, burst = min(level, b.level[k] / b.c[k].unit), min(burst, b.c[k].burst)
  end
  return level, burst
end

-- reply answers from the stored grant and the present state.
local function reply(granted, void, allowance)
  local active, target = weights(b), b.c.target
  local frozen = max(0, b.frozen - b.now)
  local retry, delay = 0, 0
  local least = max(1, need)
  if granted < least then -- until every level has reached the need, if nobody draws
    for k = 1, b.c.n do retry = max(retry, wait(b, k, least)) end
  end
  if granted < want then -- until m tokens are earned and refilled, see fair.delay
    local _, burst = tightest()
    local gain = weight * b.share
    local m = max(1, need, min(gain * target / 2, burst / 2))
    local refilled = 0
    for k = 1, b.c.n do
      local l = b.c[k]
      refilled = max(refilled, (min(m, l.burst) * l.unit - b.level[k]) / l.step * l.tick)
    end
    if refilled > 0 then refilled = refilled + frozen end
    delay = refilled
    if active ~= weight then delay = max(delay, (m - allowance) / gain) end
    delay = max(delay, target / 2)
    if ledger(b) > 0 then delay = min(delay, max(2 * target, min(refilled, b.ttl))) end
    delay = ceil(min(delay, UNITS))
  end
  local life = expiry(b)
  local answer = {'ok', seq, granted, void, delay, retry, b.epoch, b.counter, active, b.now < b.contended and 1 or 0,
    life, b.now, ledger(b), b.ttl, b.c.text == mine.text and '' or b.c.text}
  for k = 1, b.c.n do answer[15 + k] = floor(b.level[k] / b.c[k].unit) end
  return answer, life
end

-- Step 4.
if live then
  if seq < r.seq then return {'stale'} end
  if seq == r.seq then
    local answer, life = reply(r.granted, r.void, r.allowance)
    if not sound(b) then return {'damaged', KEYS[1], 'the state would be out of range'} end
    write(KEYS[1], b, life)
    return answer
  end
end

-- Step 5.
local known = live and remaining + returned <= r.held
if known then -- after a limit was lowered leases are not renewed before the ledger fits it
  local reported = ledger(b) + remaining - r.held
  for k = 1, b.c.n do known = known and reported <= b.c[k].burst + b.c.over end
end
local at, slot = -1, nil
if live then at, slot = r.slice, r.slice % SLICES + 1 end
if known then
  b.held[slot] = b.held[slot] + (remaining - r.held)
else
  remaining = 0
end
local allowance, last
if live then
  b.weight[slot] = b.weight[slot] - r.weight
  allowance, last = r.allowance, r.last
else
  allowance, last = weight * b.share * b.c.target, b.now
end

-- Step 6. While a loss is waited out the ledger may know less than the truth, so there is no room to credit.
local out, credited = ledger(b), known and b.now >= b.frozen
for k = 1, b.c.n do
  local l = b.c[k]
  if credited then
    local room = capacity(b, l, out) -- as for a refill: after a limit was lowered the ledger may still be above B + E
    local back = (min(returned, l.burst) + min(refund, l.burst)) * l.unit
    b.level[k] = max(b.level[k], min(b.level[k] + back, room))
    brim(b, k, room - b.level[k])
  end
  b.level[k] = max(0, b.level[k] - min(debt, l.burst) * l.unit)
end

-- Step 7: what every level has, within the fair allowance.
local available = UNITS
for k = 1, b.c.n do available = min(available, floor(b.level[k] / b.c[k].unit)) end
local granted = min(want, available)
do
  local alone, target = weights(b) == 0, b.c.target
  local level, burst = tightest()
  local point = min(burst / 2, max(1, speed * target))
  local period = max(target, point / speed)
  local half = min(max(b.now - b.updated, 0), period) / period * max(-1, min(1, (level - point) / point)) / 2
  b.share = max(speed / 100000, min(speed, b.share * ((1 + half) / (1 - half))))
  b.updated = b.now
  local gain = weight * b.share
  allowance = min(allowance + gain * min(max(b.now - last, 0), b.ttl), max(1, need, 2 * (gain * target)))
  last = b.now
  local most = alone and UNITS or max(0, min(max(ceil(allowance), floor((level - point) / 2)), UNITS))
  granted = min(granted, most)
  if want > available and out - remaining > 0 then b.contended = b.now + 2 * target end
end
if granted < need then granted = 0 end
allowance = max(-1, allowance - granted)
for k = 1, b.c.n do b.level[k] = b.level[k] - granted * b.c[k].unit end

-- The whole holding moves to its new slice, never to an earlier one. What waited is admitted now and not held.
local kept = granted - min(granted, waiting)
local to = max(place(), at)
if known then
  b.held[slot] = b.held[slot] - remaining
end
slot = to % SLICES + 1
b.held[slot] = b.held[slot] + remaining + kept
b.weight[slot] = b.weight[slot] + weight

local answer, life = reply(granted, known and 0 or 1, allowance)
if not sound(b) then return {'damaged', KEYS[1], 'the state would be out of range'} end
local ends = (to + 1) * b.width
write(KEYS[1], b, life, KEYS[2],
  format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %s %.0f %.17g', b.birth, b.epoch, seq, b.gen, to, ends,
    remaining + kept, weight, granted, known and '0' or '1', last, allowance),
  ends - b.now + 2 * b.width)
return answer
