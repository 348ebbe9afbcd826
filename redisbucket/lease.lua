-- lease.lua: one lease call for one key (docs/protocol.md section 4). KEYS, ARGV and units: common.lua.
--
-- KEYS[2]  the record of this holder, a string in the slot of the bucket: 'y', a byte, the layout's number, and
--          integers without a sign but for allowance, a double; the bytes of each:
--            birth 7, epoch 7, seq 7, ends 7, held 7, weight 4, waiting 7, granted 7, void 1, since 7, last 7
--            allowance 8
-- ARGV[3]  the request, integers without a sign but for headroom, a double; the bytes of each:
--            ttl 4, want 7, epoch 7, counter 7, denied 7, seq 7, need 7, weight 4
--            leaseMax 7, heardAt 7, heardAge 7, heardExpiry 7, heardFrozen 7
--            remaining 7, returned 7, waiting 7, headroom 8, draw 1
--          ttl is a proposal, headroom a part of each burst. epoch, counter, leaseMax, heardAt (the
--          server's time), heardExpiry and heardFrozen repeat the last reply, or are 0. A draw leaves out the
--          last line if waiting is want, and all other numbers there are 0. At the end, for all that is
--          reported of an earlier time, at most 16 times of each kind:
--            kind 1, tokens 7, time 7
--          kind is 0 for unused, 1 for refund, 2 for debt, 3 for charge; time is the running time of the
--          draw of the first two, and the age of the others
--
-- Reply, unless draw.lua has answered, a string of integers without a sign but for level, a double; the bytes of
-- each:
--   seq 7, granted 7, flags 1, delay 7, retryAfter 7, epoch 7, counter 6, activeWeight 7, expiry 7, leaseMax 7,
--   frozen 7, running 7, clock 7, ledger 7, target 7, ttl 4
--   level 8, next 7 of each limit
--           flags are 1 for void, 2 for contended, and 4 for each level; level is in whole tokens, less the
--           caller's headroom; next is the time until there is one token more, 0 for a full limit
-- and the configuration, if it is not the caller's; or an array:
--   {'stale'}              seq is below one already executed
--   {'invalid', why}       an argument is out of range
--   {'damaged', key, why}  the stored text cannot be trusted
--   {'newer', key, layout} a newer release stored it; these four write nothing
--
-- Steps, in the order that makes the bound exact; 1 to 3 are those of open.lua:
--   4  an executed seq gets the stored grant again; a lower one is refused
--   5  the report: known or void
--   6  the tokens that come back: returned, unused, refund; then debt and charge
--   7  the grant

if seq < 1 then return {'invalid', 'seq is below 1'} end
if need > want then return {'invalid', 'need is above want'} end
if weight < 1 or weight > 1048576 then return {'invalid', 'weight is out of range'} end
counter = counter + 1

-- inForce returns the Target in force for this holder; the time to wait after a short grant, 0 if that
-- is at most the configured Target; and whether the budget of calls asks for fewer calls than one in
-- that time (section 7.8).
local function inForce()
  local target, fills, n = c.target, c.fills, max(active, weight) / weight
  if active == 0 then return target, 0, false end
  local budget, easy = c.calls, 0
  if budget == 0 then
    budget = callBudget
    if not c.windows then easy = n * 1000000 / easyCalls end
  end
  local spacing = n * 1000000 / budget
  local longer = max(min(spacing, n / (2 * n + 40) * fills, targetMax), min(easy, easyTarget, easyTargetPart * fills))
  local pause = min(max(min(spacing, pausePart * fills), min(easy, easyPause, easyPausePart * fills)), 0.75 * ttl)
  return max(target, floor(longer)), pause > target and pause or 0, spacing > target
end

-- binding returns, of the limit with the fewest tokens for this caller: these, the burst without its
-- headroom, the rate, and whether it is a window; and the fewest tokens of all limits.
local function binding()
  local level, burst, speed, window, steer = math.huge, 0, 0, false, math.huge
  for k = 1, c.n do
    local l = c[k]
    local kept = headroom > 0 and ceil(l.burst * headroom) or 0
    local sees = (l.level - kept * l.unit) / l.unit
    if sees < level then
      level, burst, speed, window = sees, max(1, l.burst - kept), l.step / l.unit / l.tick, l.kind ~= nil
    end
    steer = min(steer, l.level / l.unit)
  end
  return level, burst, speed, window, steer
end

-- waitFor returns the time until this caller sees n tokens in every limit.
local function waitFor(n)
  local longest, frost = 0, max(0, frozen - now)
  for k = 1, c.n do longest = max(longest, wait(c[k], n + ceil(c[k].burst * headroom), frost)) end
  return longest
end

-- The record is live if it is of this bucket and epoch, and its slice is still in the ring (section
-- 6.8).
local live, at, slot, ends = false, -1, nil, nil
local storedSeq, oldHeld, oldWeight, granted, void, since, last, allowance
local record, recordLife
-- A draw that may find the bucket at rest (section 4.1). Then no record is live.
local rest = draw == 1 and c.switch == 0 and ledger == 0 and active == 0 and now >= frozen and now >= contended
  and size < 116
if not rest then record = redis.pcall('GET', keys[2]) end
if record then
  if record.err then
    return string.find(record.err, 'WRONGTYPE') and {'damaged', keys[2], record.err} or record
  end
  local stored, ofBirth, ofEpoch, waited
  if #record ~= 78 then
    return refusal(keys[2], record) or {'damaged', keys[2], 'the length is not that of a record'}
  end
  stored, ofBirth, ofEpoch, storedSeq, ends, oldHeld, oldWeight, waited, granted, void, since, last,
    allowance = decode('<I2I7I7I7I7I7I4I7I7I1I7I7d', record)
  if stored ~= mark then
    local other = refusal(keys[2], record)
    if other then return other end
  end
  if void > 1 or storedSeq >= 2^52 or ends >= 2^53 or granted >= 2^52 or since >= 2^52 or last >= 2^52
      or not (allowance >= -2^52 and allowance < 2^53) then
    return {'damaged', keys[2], 'a number of the record is out of range'}
  end
  if ofBirth == birth and ofEpoch == epoch and ends > moved then
    at = ceil(ends / width) - 1
    live = at >= base
  end
  if live then
    slot = at % 8 + 1
    if at > base + 7 or held[slot] < oldHeld or weights[slot] < oldWeight then
      return {'damaged', keys[2], 'the record and the ledger of the bucket disagree'}
    end
  end
end

-- Step 4.
if live and seq < storedSeq then return {'stale'} end
if live and seq == storedSeq then
  record = nil
else
  -- Step 5. A record that a void call wrote counts only for a holder that has heard of it.
  local known = live and seen == epoch and counted >= since and remaining + returned <= oldHeld
  if known then -- leases of a lowered limit are not renewed while the ledger is too large for it
    local reported = ledger + remaining - oldHeld
    for k = 1, c.n do known = known and reported <= c[k].most end
    if c.switch == 2 then known = known and reported <= 0 end
  end
  if known then
    local change = remaining - oldHeld
    held[slot], ledger = held[slot] + change, ledger + change
    if c.windows then c.windows.charge(c, now, oldHeld - remaining - returned) end
  else
    remaining, since = 0, counter
  end
  if live then
    weights[slot], active = weights[slot] - oldWeight, active - oldWeight
  else
    at, allowance = -1, nil
  end

  -- Step 6. While a loss is waited out, there is no room to credit.
  local credits, filled = known and now >= frozen, setAt
  local back = returned > 0 or size > 115
  for k = 1, c.n do back = back or c[k].rest > 0 end
  if back then
    local bucket = bucketRules()
    for k = 1, credits and c.n or 0 do
      if not c[k].kind then bucket.back(c[k], returned, ledger) end
    end
    for i = 116, size, 15 do
      local kind, n, time = decode('<I1I7I7', argv[3], i)
      for k = 1, c.n do
        local l = c[k]
        local refunded
        if l.kind then
          refunded = c.windows.late(l, kind, n, time, credits, setAt, now, frozen, ledger)
        else
          refunded = bucket.late(l, kind, n, time, credits, setAt, now, ledger)
        end
        if refunded then filled = now end
      end
    end
  end
  setAt = filled
  if c.windows then c.windows.see(c, ledger, now, frozen) end
  if c.switch > 0 then -- Unlimited leases nothing: what came back later would count for the limits beneath
    granted, last = c.switch == 1 and waiting >= need and min(want, waiting) or 0, now
    allowance = min(allowance or 0, 2^52)
  else
    -- The share follows the level that the caller sees, or the tightest itself if it sees nothing.
    local level, burst, speed, window, steer = binding()
    if level >= 0 then steer = level end
    if not allowance then -- a new holder has the share of a Target, so that it need not wait
      last, allowance = now, weight * min(share, speed / weight) * (inForce())
    end

    -- Step 7: grant the tokens that every level has, within the fair allowance (section 7).
    local available = max(0, floor(level))
    granted = want < available and want or available
    local alone, target = active == 0, c.target
    local point = min(burst / 2, max(1, speed * target / 2))
    local own = speed / weight -- the share with which the caller has the whole rate
    share = min(share, own)
    local period, slowest, long, pause, crowded = max(target, point / speed), own / 100000, inForce()
    local pull = max(-1, min(1, (steer - point) / (2 * point)))
    -- A window divides tokens that were used long ago: they follow a change of the share only when they
    -- are dropped.
    if window then slowest = 0.9 * (speed / max(active, weight)) end
    if pause > 0 then
      local equal = speed / max(active, weight)
      slowest = 0.9 * equal
      period = max(period, pull < 0 and pause * min(1, equal / share) or pause)
    end
    local lean, half = pull / 12, min(max(now - updated, 0), period) / period * pull / 2
    share = max(slowest, min(own, share * ((1 + half) / (1 - half))))
    updated = now
    rest = rest and share == own and want <= available
    local gain = weight * share
    local scarcity, cap = 1 - share / own, min(2^52, max(1, need, 4 * (gain * long)))
    local earned = min(speed, gain * ((1 + lean) / (1 - lean))) * min(max(now - last, 0), ttl)
    allowance = min(max(allowance, -max(1, cap * scarcity)) + earned, cap)
    local left = scarcity / 2
    if crowded then left = scarcity * (1 - weight / max(active, weight)) end
    local free = floor((level - point * scarcity) * (1 - left))
    local most = alone and 2^52 or max(0, min(max(ceil(allowance), free), 2^52))
    if most < granted then granted = most end
    if want > available and ledger - remaining > 0 then contended = now + 2 * target end
    -- What calls have been refused for two Targets, although it is there, the next one that needs it gets.
    local least = max(1, need)
    if granted < least and least <= want and least <= available then
      granted = idle > 0 and now - idle >= 2 * max(target, pause) and least or 0
      if idle == 0 then idle = max(now, 1) end
    end
    if granted < need then granted = 0 end
    if granted > 0 then idle = 0 end
    allowance, last = max(-2^52, allowance - granted), now
    for k = 1, c.n do
      local l = c[k]
      l.level = l.level - granted * l.unit
    end
    -- Tokens that are not admitted now will be charged when they are spent.
    if c.windows then c.windows.charge(c, now, min(granted, waiting)) end
  end

  local kept = granted - (waiting < granted and waiting or granted)
  if rest then -- nothing is held, and what a bucket at rest does not need to remember is made plain
    width = widthFor(ttl)
    base, moved, contended, idle, void, share = floor(now / width), now, 0, 0, 0, c.speed
  else
    -- The whole holding moves to its new slice, never to an earlier one. The tokens that requests
    -- waited for are admitted now and not held.
    local to = max(min(floor((now + ttl) / width), base + 7), at)
    if known then held[slot] = held[slot] - remaining end
    slot = to % 8 + 1
    held[slot], weights[slot] = held[slot] + remaining + kept, weights[slot] + weight
    ledger, active = ledger + kept, active + weight
    void = known and 0 or 1
    ends = (to + 1) * width
    record = encode('<I2I7I7I7I7I7I4I7I7I1I7I7d', mark, birth, epoch, seq, ends, remaining + kept, weight,
      waiting - granted + kept, granted, void, since, last, allowance)
    recordLife = ends - now + 2 * width
  end

  -- Informational counts; no rule reads them.
  used = granted - kept + used
  if known and oldHeld > remaining + returned + unused then
    used = used + (oldHeld - remaining - returned - unused)
  end
  spent, denied = (spent + (used < 2^52 and used or 2^52 - 1)) % 2^48, (denied + refused) % 2^48
end

-- The reply: the stored grant and the present state.
if c.windows then c.windows.see(c, ledger, now, frozen) end
local frost, retry, delay = max(0, frozen - now), 0, 0
if c.switch ~= 1 and (granted < want or granted < 1) then
  local least = max(1, need)
  if granted < least then
    retry = waitFor(least)
    if c.switch == 2 then retry = 3153600000000000 end
  end
  if granted < want then -- section 7.7
    local gain, target, long, pause = weight * share, c.target, inForce()
    local level, burst, speed = binding()
    local m = ceil(max(1, need, min(pause > 0 and gain * pause or gain * target / 2, burst / 2)))
    local refilled = waitFor(m)
    delay = refilled
    if active ~= weight then
      local owed = min(2^52, max(1, need, 4 * (gain * long))) * (1 - share / (speed / weight))
      delay = max(delay, floor((m - 1 - max(allowance, -max(1, owed))) / gain) + 1)
    end
    if speed * target > 1 then delay = max(delay, target / 2, pause * (1 - share / (speed / weight))) end
    if ledger > 0 then delay = min(delay, max(2 * target, 2 * pause, min(refilled, ttl))) end
    local least = max(1, need)
    if granted < least and c.switch == 0 and level >= least then delay = min(delay, 2 * max(target, pause)) end
    delay = ceil(max(1, min(delay, 2^52)))
  end
end
local longest
keep, longest = remember(c, keep, now, ttl, frost, base, width, held, weights)
local target, told, answer = inForce(), ends and min(ttl, ends - last) or ttl, nil
local flags = void + (now < contended and 2 or 0) + (c.switch > 0 and 4 or 4 * c.n)
