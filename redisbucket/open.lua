-- open.lua begins every call: it reads the request and the bucket, executes steps 1 to 3 of docs/protocol.md
-- section 4, and writes nothing. open.lua ends the call with {'invalid', why}, {'damaged', key, why} or
-- {'newer', key, layout}, or sets local variables for the fields of the bucket's text and for these values:
--   exists           whether the bucket is there
--   c                its configuration; its limits c[1] to c[c.n] hold the levels
--   mine             the configuration that the caller proposes
--   ttl, proposed    the T in force, and the longest proposed since proposedAt
--   passed           the time since the last call
--   base, ring       the present slice; the tokens in each of 8 slots, and the weights there
--   ledger, active   the sums of tokens and of weights

local call, keys, argv = redis.call, KEYS, ARGV
local op = argv[4]

local mine, why
if argv[1] ~= '' then
  mine, why = parse(argv[1], struct, windowRules)
  if not mine then return {'invalid', why} end
end
-- A request of 78 bytes ends before the field remaining. change.lua reads the fields from leaseMax to
-- heardExpiry.
local size, asked, want, seen, counted, refused, seq, need, weight
local remaining, returned, waiting, headroom, draw, unused, used = 0, 0, 0, 0, 1, 0, 0
size = #argv[3]
if size ~= 78 and (size < 108 or (size - 108) % 15 > 0) then
  return {'invalid', 'the length is not that of a request'}
end
asked, want, seen, counted, refused, seq, need, weight = decode('<I4I7I7I7I7I7I7I4', argv[3])
waiting = want
if size > 78 then remaining, returned, waiting, headroom, draw = decode('<I7I7I7dI1', argv[3], 79) end
if seq >= 2^52 or remaining >= 2^52 or returned >= 2^52 or want >= 2^52 or need >= 2^52 or waiting >= 2^52
    or weight >= 2^52 or seen >= 2^52 or counted >= 2^52 or refused >= 2^52 then
  return {'invalid', 'a number of the request is not below 2^52'}
end
-- Read the late entries. late is above 0 if tokens are unused or refunded. used is the sum of debt and
-- charge.
local late, entries = 0, size > 108 and {0, 0, 0, 0}
for i = 109, size, 15 do
  local kind, n, at = decode('<I1I7I7', argv[3], i)
  if kind > 3 or n < 1 or n >= 2^52 or at >= 2^52 or entries[kind + 1] == 16 then
    return {'invalid', 'a late entry is out of range'}
  end
  entries[kind + 1] = entries[kind + 1] + 1
  if kind == 0 then unused = min(unused + n, 2^52 - 1) end
  if kind < 2 then late = n else used = min(used + n, 2^52 - 1) end
end
if headroom ~= 0 and not (headroom > 0 and headroom < 1) then
  return {'invalid', 'the headroom is out of range'}
end
if draw > 1 or draw == 1 and (want ~= waiting or remaining + returned + late > 0) then
  return {'invalid', 'a draw must return nothing, and want must equal waiting'}
end
if mine and (asked < 2 * mine.target or asked > 3600000000) then
  return {'invalid', 'the ttl is out of range'}
end

-- Step 1: Read the time once.
local clock
if argv[2] == '' then
  local t = call('TIME')
  clock = t[1] * 1000000 + t[2]
else
  clock = string.find(argv[2], '^%d+$') and tonumber(argv[2])
  if not clock or clock >= 2^52 then return {'invalid', 'the time is out of range'} end
end

-- Read the stored bucket.
local c, exists, changed, now = nil, true, false, clock
local birth, epoch, counter, spent, denied, frozen, setAt, keep, stood, ttl, proposed, proposedAt
local width, moved, updated, contended, idle, share, passed
local ring, base, ledger, active
local text = redis.pcall('GET', keys[1])
if not text then
  exists = false
elseif text.err then
  -- An error other than WRONGTYPE, such as a missing permission, says nothing about the stored value.
  return string.find(text.err, 'WRONGTYPE') and {'damaged', keys[1], text.err} or text
else
  local y, number = byte(text, 1, 2)
  if y ~= 121 or not number or number % 8 < oldest then
    return {'damaged', keys[1], 'the layout mark is missing'}
  end
  if number % 8 > layout then return {'newer', keys[1], number % 8} end
  local form = (number - number % 8) / 8
  local n = form % 4 + 1
  local dated, used, past = form % 8 > 3, form % 16 > 7, form > 15
  local others = used and 201 or 49 -- index of the other limits' levels
  local at = others + 10 * (n - 1)
  local size = at + (dated and 7 or 0) + (past and 46 + 8 * n or 0) -- index of the configuration
  local ends = size + 30 + 30 * n
  if past and not used or #text < ends - 1 then
    return {'damaged', keys[1], 'the length is not that of a bucket'}
  end
  c = mine
  if not mine or mine.n ~= n or string.find(text, mine.text, size, true) ~= size then
    local stored = string.sub(text, size, ends - 1)
    c, why = parse(stored, struct, windowRules)
    if not c then return {'damaged', keys[1], why} end
    -- A caller that proposes a switch does not know the limits beneath the switch.
    if mine and mine.switch > 0 and string.sub(stored, 1, 30) == string.sub(mine.text, 1, 30) then mine = c end
  end
  size = ends
  local was, before, level, rest
  if used then
    epoch, counter, was, ttl, spent, denied, level, rest, share, width, keep, moved, contended, idle =
      decode('<I7I6I7I4I6I6I7I3dI4I7I7I7I7', text, 3)
    ring = {decode('<I7I7I7I7I7I7I7I7I7I7I7I7I7I7I7I7', text, 89)}
    ledger = ring[1] + ring[2] + ring[3] + ring[4] + ring[5] + ring[6] + ring[7] + ring[8]
    active = ring[9] + ring[10] + ring[11] + ring[12] + ring[13] + ring[14] + ring[15] + ring[16]
    if not (share > 0 and share < 2^53) then return {'damaged', keys[1], 'the share is out of range'} end
    if width < 1 or width > 2^29 then -- 2^29 us is the width for the longest T
      return {'damaged', keys[1], 'a duration is out of range'}
    end
    if ledger >= 2^52 or active >= 2^52 then return {'damaged', keys[1], 'the ledger is out of range'} end
    if keep >= 2^53 or contended >= 2^53 or moved > was or idle > was then
      return {'damaged', keys[1], 'a time is out of range'}
    end
  else
    epoch, counter, was, ttl, spent, denied, level, rest = decode('<I7I6I7I4I6I6I7I3', text, 3)
    share, width, moved, contended, idle, ledger, active = c.speed, seldom().widthFor(ttl), was, 0, 0, 0, 0
    ring = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
    keep = remember(c, 0, was, ttl, 0)
  end
  setAt = epoch - 1
  if dated then setAt, at = decode('<I7', text, at), at + 7 end
  birth, before, frozen, stood, proposed, proposedAt, updated = epoch, was, 0, was, ttl, was, was
  if past then
    birth, before, frozen, stood, proposed, proposedAt, updated = decode('<I7I7I7I7I4I7I7', text, at)
    at = at + 46
    if birth > was or before >= 2^52 or frozen > was + 7200000000 or stood > was or proposedAt > was
        or updated > was or proposed < 2 or proposed > 3600000000 then
      return {'damaged', keys[1], 'a time is out of range'}
    end
  end
  if epoch < 1 or epoch >= 2^52 or was >= 2^52 or setAt > was or ttl < 2 or ttl > 3600000000 then
    return {'damaged', keys[1], 'a time is out of range'}
  end
  for k = 1, n do
    local l = c[k]
    if k > 1 then level, rest = decode('<I7I3', text, others + 10 * k - 20) end
    if l.kind then
      size = c.windows.read(l, text, size, level, rest, was, before)
      if not size then return {'damaged', keys[1], 'a window charge is out of range'} end
      level, rest = 0, 0
    elseif level > l.burst * l.unit or rest >= l.tick then
      return {'damaged', keys[1], 'a level is out of range'}
    end
    if past then
      local owed = decode('<d', text, at + 8 * k - 8)
      if owed ~= 0 and (l.kind or level > 0 or owed % 1 ~= 0 or owed > 0
          or owed < 0 - seldom().deepest(l)) then
        return {'damaged', keys[1], 'a level is out of range'}
      end
      level = level + owed
    end
    l.level, l.rest = level, rest
  end
  if size ~= #text + 1 then return {'damaged', keys[1], 'the length is not that of a bucket'} end
  -- After the clock steps back by at most 1 s, the running time stands still until the clock has caught up.
  if clock < before and before - clock <= 1000000 then clock = before end
  passed = clock > before and clock - before or 0
  now = was + passed

  -- Steps 2 and 3: Refill up to the end of each slice with the old ledger, and then forget the slice.
  base = was / width
  base = base - base % 1
  local last, ends = base + 8, (base + 1) * width
  while ends <= now and base < last do
    local slot = base % 8 + 1
    if ring[slot] ~= 0 then
      refill(c, max(was, frozen), ends, ledger)
      if c.windows then c.windows.pass(c, ends, clock - (now - ends), ring[slot]) end
      was = ends
    end
    ledger, active = ledger - ring[slot], active - ring[slot + 8]
    ring[slot], ring[slot + 8] = 0, 0
    base = base + 1
    ends = (base + 1) * width
  end
  base = now / width
  base = base - base % 1
  refill(c, was > frozen and was or frozen, now, ledger)
  if c.windows then c.windows.pass(c, now, clock, 0) end
  if now >= frozen then frozen = 0 end
end
