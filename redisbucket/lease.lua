-- lease.lua executes one lease call for one key (docs/protocol.md section 4). common.lua describes the notation
-- and the other keys and arguments.
--
-- KEYS[2] is the record of the holder, in the slot of the bucket:
--          'y'; a byte, the layout's number; and integers without a sign but for allowance, a double
--            birth 7, epoch 7, seq 7, ends 7, held 7, weight 4, waiting 7, granted 7, void 1, since 7, last 7
--            allowance 8
-- ARGV[3] is the request, of integers without a sign but for headroom, a double:
--            ttl 4, want 7, epoch 7, counter 7, denied 7, seq 7, need 7, weight 4
--            leaseMax 7, heardAt 7, heardAge 7, heardExpiry 7
--            remaining 7, returned 7, waiting 7, headroom 8, draw 1
--          ttl is a proposal, headroom a part of each burst. epoch, counter, heardAt (the server's time) and
--          heardExpiry repeat the last reply, leaseMax its leaseMax or frozen if that is more; before a reply
--          all are 0. A draw omits the last line if waiting equals want and all its other numbers are 0. Late
--          entries follow, at most 16 of each kind:
--            kind 1, tokens 7, time 7
--          kind is 0 for unused, 1 for refund, 2 for debt, 3 for charge. time is the running time of the draw
--          for unused and refund, and the age for debt and charge.
--
-- The reply, unless draw.lua has answered, is a string of integers without a sign but for level, a double:
--   seq 7, granted 7, flags 1, delay 7, retryAfter 7, epoch 7, counter 6, activeWeight 7, expiry 7, leaseMax 7,
--   frozen 7, running 7, clock 7, ledger 7, target 7, ttl 4
--   level 8, next 7 of each limit
--           flags are 1 for void, 2 for contended, and 4 for each level. level is in whole tokens, less the
--           caller's headroom. next is the time until the next token, 0 for a full limit.
-- The configuration in force follows if it differs from the caller's. The reply to a refused call, which writes
-- nothing, is an array:
--   {'stale'}              a higher seq was executed before
--   {'invalid', why}       an argument is out of range
--   {'damaged', key, why}  the stored text cannot be trusted
--   {'newer', key, layout} a newer release stored the text

if seq < 1 then return {'invalid', 'seq is below 1'} end
if need > want then return {'invalid', 'need is above want'} end
if weight < 1 or weight > 1048576 then return {'invalid', 'weight is out of range'} end
counter = counter + 1

local windows, switch = c.windows, c.switch

-- pace returns three results (7.8). The first is the Target in force for this holder. The second is the pause
-- after a grant that is smaller than asked; a pause up to the configured Target counts as 0. The third says
-- whether the call budget allows a holder less than one call per configured Target. Go replaces names such as
-- callBudget by numbers.
local function pace(c, active, weight, ttl)
  local target, fills, calls, n = c.target, c.fills, c.calls, active > weight and active / weight or 1
  local spacing, easy = n * 1000000 / (calls > 0 and calls or callBudget), 0
  if calls == 0 and not c.windows then easy = n * 1000000 / easyCalls end
  if active == 0 or spacing <= target and easy <= target then return target, 0, false end
  local part, spare = n / (2 * n + 40) * fills, pausePart * fills
  local longer, pause = spacing < part and spacing or part, spacing < spare and spacing or spare
  if longer > targetMax then longer = targetMax end
  part, spare = easy < easyTarget and easy or easyTarget, easy < easyPause and easy or easyPause
  if part > easyTargetPart * fills then part = easyTargetPart * fills end
  if spare > easyPausePart * fills then spare = easyPausePart * fills end
  if longer < part then longer = part end
  if pause < spare then pause = spare end
  if pause > 0.75 * ttl then pause = 0.75 * ttl end
  longer = longer - longer % 1
  return longer > target and longer or target, pause > target and pause or 0, spacing > target
end

-- binding returns facts about the limit that binds for a caller with this headroom: the tokens above the
-- headroom, the burst less the headroom, the rate, and the kind of a window. The last result is the level
-- that steers the fair share (7.1).
local function binding(c, headroom)
  local level, burst, speed, window, steer
  for k = 1, c.n do
    local l = c[k]
    local kept = headroom > 0 and math.ceil(l.burst * headroom) or 0
    local sees, has = (l.level - kept * l.unit) / l.unit, l.level / l.unit
    if k == 1 or sees < level then
      level, burst, speed, window = sees, l.burst > kept and l.burst - kept or 1, l.step / l.unit / l.tick, l.kind
    end
    if k == 1 or has < steer then steer = has end
  end
  return level, burst, speed, window, level < 0 and steer or level
end

-- A record is live if its birth and epoch are those of the bucket, and its slice is in the ring (6.8).
local live, at, slot, ends = false, -1, nil, nil
local storedSeq, oldHeld, oldWeight, granted, void, since, last, allowance
local record, recordLife
-- rest says whether this call may be a draw of a bucket at rest (4.1), which has no live record.
local rest = draw == 1 and switch == 0 and ledger == 0 and active == 0 and now >= frozen and now >= contended
  and size < 109
if not rest then record = redis.pcall('GET', keys[2]) end
if record then
  if record.err then
    return string.find(record.err, 'WRONGTYPE') and {'damaged', keys[2], record.err} or record
  end
  local mark, ofBirth, ofEpoch, waited
  if #record == 78 then
    mark, ofBirth, ofEpoch, storedSeq, ends, oldHeld, oldWeight, waited, granted, void, since, last, allowance =
      decode('<I2I7I7I7I7I7I4I7I7I1I7I7d', record)
  end
  if mark ~= 121 + 256 * layout then
    local y, number = byte(record, 1, 2)
    if y ~= 121 or not number or number % 8 < oldest then
      return {'damaged', keys[2], 'the layout mark is missing'}
    end
    if number % 8 > layout then return {'newer', keys[2], number % 8} end
    if not mark then return {'damaged', keys[2], 'the length is not that of a record'} end
  end
  if void > 1 or storedSeq >= 2^52 or ends >= 2^53 or granted >= 2^52 or since >= 2^52 or last >= 2^52
      or not (allowance >= -2^52 and allowance < 2^53) then
    return {'damaged', keys[2], 'a number of the record is out of range'}
  end
  if ofBirth == birth and ofEpoch == epoch and ends > moved then
    at = (ends - 1) / width
    at = at - at % 1
    live = at >= base
  end
  if live then
    slot = at % 8 + 1
    if at > base + 7 or ring[slot] < oldHeld or ring[slot + 8] < oldWeight then
      return {'damaged', keys[2], 'the record and the ledger of the bucket disagree'}
    end
  end
end

-- Step 4: A retry gets the stored grant again, and a lower seq is refused.
if live and seq < storedSeq then return {'stale'} end
if live and seq == storedSeq then
  record = nil
else
  -- Step 5: A report is known or void. After a void call, reports are void until the holder gets the reply.
  local known = live and seen == epoch and counted >= since and remaining + returned <= oldHeld
  if known then -- no renewal while the ledger exceeds a lowered limit
    local reported = ledger + remaining - oldHeld
    known = reported <= c.least and (switch ~= 2 or reported <= 0)
  end
  if known then
    local change = remaining - oldHeld
    ring[slot], ledger = ring[slot] + change, ledger + change
    if windows then windows.charge(c, now, oldHeld - remaining - returned) end
  else
    remaining, since = 0, counter
  end
  if live then
    ring[slot + 8], active = ring[slot + 8] - oldWeight, active - oldWeight
  else
    at, allowance = -1, nil
  end

  -- Step 6: No tokens are credited during a freeze.
  local credits, filled = known and now >= frozen, setAt
  if returned > 0 or size > 108 or c.coarse then
    local bucket = seldom(capacity, dropFullRest)
    for k = 1, credits and c.n or 0 do
      if not c[k].kind then bucket.back(c[k], returned, ledger) end
    end
    for i = 109, size, 15 do
      local kind, n, time = decode('<I1I7I7', argv[3], i)
      for k = 1, c.n do
        local l = c[k]
        local refunded
        if l.kind then
          refunded = windows.late(l, kind, n, time, credits, setAt, now, frozen, ledger)
        else
          refunded = bucket.late(l, kind, n, time, credits, setAt, now, ledger)
        end
        if refunded then filled = now end
      end
    end
  end
  setAt = filled
  if windows then windows.see(c, ledger, now, frozen) end
  if switch > 0 then -- Unlimited leases nothing, because returned tokens would fill the limits beneath
    granted, last = switch == 1 and waiting >= need and min(want, waiting) or 0, now
    allowance = min(allowance or 0, 2^52)
  else
    local level, burst, speed, window, steer = binding(c, headroom)
    local own, long, pause, crowded = speed / weight, pace(c, active, weight, ttl)
    if own < share then share = own end -- the fair share is at most the whole rate
    -- A new holder starts with its fair share of one Target, so that its first grant does not wait.
    if not allowance then last, allowance = now, weight * share * long end

    -- Step 7: Grant the tokens that every level has, within the fair allowance (section 7).
    local available, target, point = level > 0 and level - level % 1 or 0, c.target, speed * c.target / 2
    granted = want < available and want or available
    if point < 1 then point = 1 end
    if point > burst / 2 then point = burst / 2 end
    local period, slowest, pull = point / speed, own / 100000, (steer - point) / (2 * point)
    if period < target then period = target end
    if pull > 1 then pull = 1 elseif pull < -1 then pull = -1 end
    -- A window gets tokens back only when charges are dropped, so holders react late to a new share (7.9).
    if window then slowest = 0.9 * (speed / max(active, weight)) end
    if pause > 0 then
      local equal = speed / max(active, weight)
      slowest = 0.9 * equal
      period = max(period, pull < 0 and pause * min(1, equal / share) or pause)
    end
    local lean, half, quiet = pull / 12, now - updated, now - last
    half = (half < period and half or period) / period * pull / 2
    share, updated = share * ((1 + half) / (1 - half)), now
    if share > own then share = own end
    if share < slowest then share = slowest end
    rest = rest and share == own and want <= available
    local gain, scarcity = weight * share, 1 - share / own
    local cap, earned = 4 * (gain * long), gain * ((1 + lean) / (1 - lean))
    if cap < need then cap = need end
    if cap < 1 then cap = 1 elseif cap > 2^52 then cap = 2^52 end
    local owed = cap * scarcity > 1 and cap * scarcity or 1
    if allowance < -owed then allowance = -owed end
    if earned > speed then earned = speed end
    if quiet > 0 then allowance = allowance + earned * (quiet < ttl and quiet or ttl) end
    if allowance > cap then allowance = cap end
    if active > 0 then
      local left = scarcity / 2
      if crowded then left = scarcity * (1 - weight / (active > weight and active or weight)) end
      local free = (level - point * scarcity) * (1 - left)
      local most = allowance + -allowance % 1
      if free > most then most = free - free % 1 end
      if most < granted then granted = most > 0 and most or 0 end
    end
    if want > available and ledger - remaining > 0 then contended = now + 2 * target end
    -- If the bucket has had tokens but refused calls their need for two Targets, grant this call its need
    -- (7.10).
    local least = need > 1 and need or 1
    if granted < least and least <= want and least <= available then
      granted = idle > 0 and now - idle >= 2 * max(target, pause) and least or 0
      if idle == 0 then idle = max(now, 1) end
    end
    if granted < need then granted = 0 end
    if granted > 0 then idle = 0 end
    allowance, last = allowance - granted, now
    if allowance < -2^52 then allowance = -2^52 end
    for k = 1, c.n do
      local l = c[k]
      l.level = l.level - granted * l.unit
    end
    -- A window counts tokens for waiting requests now, and leased tokens once they are spent.
    if windows then windows.charge(c, now, min(granted, waiting)) end
  end

  local kept = granted - (waiting < granted and waiting or granted)
  if rest then -- reset the numbers that a bucket at rest does not store
    width = seldom().widthFor(ttl)
    base, moved, contended, idle, void, share = floor(now / width), now, 0, 0, 0, c.speed
  else
    -- Move the whole holding to its new slice, but never to an earlier one. Tokens granted to waiting
    -- requests are admitted at once, and are no part of the holding.
    local to = (now + ttl) / width
    to = to - to % 1
    if to > base + 7 then to = base + 7 end
    if to < at then to = at end
    if known then ring[slot] = ring[slot] - remaining end
    slot = to % 8 + 1
    ring[slot], ring[slot + 8] = ring[slot] + remaining + kept, ring[slot + 8] + weight
    ledger, active = ledger + kept, active + weight
    void = known and 0 or 1
    ends = (to + 1) * width
    record = encode('<I2I7I7I7I7I7I4I7I7I1I7I7d', 121 + 256 * layout, birth, epoch, seq, ends, remaining + kept, weight,
      waiting - granted + kept, granted, void, since, last, allowance)
    recordLife = ends - now + 2 * width + 1000999
  end

  -- Update the informational counters.
  used = granted - kept + used
  if known and oldHeld > remaining + returned + unused then
    used = used + (oldHeld - remaining - returned - unused)
  end
  spent, denied = (spent + (used < 2^52 and used or 2^52 - 1)) % 2^48, (denied + refused) % 2^48
end

-- Build the reply. The reply to a retry has the stored grant and the present state of the bucket.
if windows then windows.see(c, ledger, now, frozen) end
local frost, retry, delay = frozen > now and frozen - now or 0, 0, 0
if switch ~= 1 and (granted < want or granted < 1) then
  -- waitFor returns the time until every limit has n tokens above the caller's headroom.
  local function waitFor(n)
    local longest = 0
    for k = 1, c.n do longest = max(longest, wait(c[k], n + ceil(c[k].burst * headroom), frost)) end
    return longest
  end
  local least = max(1, need)
  if granted < least then retry = switch == 2 and 3153600000000000 or waitFor(least) end
  if granted < want then -- section 7.7
    local gain, target, long, pause = weight * share, c.target, pace(c, active, weight, ttl)
    local level, burst, speed = binding(c, headroom)
    local m = ceil(max(1, need, min(pause > 0 and gain * pause or gain * target / 2, burst / 2)))
    local refilled = waitFor(m)
    delay = refilled
    if active ~= weight then
      local owed = min(2^52, max(1, need, 4 * (gain * long))) * (1 - share / (speed / weight))
      delay = max(delay, floor((m - 1 - max(allowance, -max(1, owed))) / gain) + 1)
    end
    if speed * target > 1 then delay = max(delay, target / 2, pause * (1 - share / (speed / weight))) end
    if ledger > 0 then delay = min(delay, max(2 * target, 2 * pause, min(refilled, ttl))) end
    if granted < least and switch == 0 and level >= least then delay = min(delay, 2 * max(target, pause)) end
    delay = ceil(max(1, min(delay, 2^52)))
  end
end
local longest, owes
keep, longest, owes = remember(c, keep, now, ttl, frost, base, width, ring)
local target, told, answer = pace(c, active, weight, ttl), ends and ends - last or ttl, nil
if told > ttl then told = ttl end
local flags = void + (now < contended and 2 or 0) + (switch > 0 and 4 or 4 * c.n)
