-- open.lua: what every call finds. It ends with the bucket settled at the time now, changed as the caller may change it,
-- and clipped: steps 1 to 3 of design.md section 4. Nothing has been written then. KEYS, ARGV and units: common.lua.
--
-- Local variables that it leaves for lease.lua, configure.lua and close.lua:
--   exists           whether the bucket was there
--   c                the configuration in force, whose limits c[1] to c[c.n] hold the levels; nil: no bucket, none wanted
--   changed          whether configure.lua changes anything
--   now birth epoch counter created frozen ttl updated contended share
--   width base gen moved landing held weight   the ring; base is the slice that now falls in
--   ledger active    the sums of held and of weight
--   and the request
--
-- Steps:
--   1  the time, once; a clock that went back
--   2  refill with the OLD ledger, piecewise where holdings ran out; then lost state, configuration and the clip
--   3  forget holdings whose time has passed

local call, keys, argv = redis.call, KEYS, ARGV
local op = argv[4]

-- The request.
local mine, why
if argv[1] ~= '' then
  mine, why = parse(argv[1])
  if not mine then return {'invalid', why} end
end
if #argv[3] ~= 104 then return {'invalid', 'the request is not 13 numbers'} end
local proposed, seq, remaining, returned, refund, debt, want, need, waiting, weight, seen, counted, heard = decode('<ddddddddddddd', argv[3])
if not (proposed % 1 + seq % 1 + remaining % 1 + returned % 1 + refund % 1 + debt % 1 + want % 1 + need % 1 + waiting % 1
    + weight % 1 + seen % 1 + counted % 1 + heard % 1 == 0)
    or min(proposed, seq, remaining, returned, refund, debt, want, need, waiting, weight, seen, counted, heard) < 0
    or max(proposed, seq, remaining, returned, refund, debt, want, need, waiting, weight, seen, counted, heard) >= 2^52 then
  return {'invalid', 'a number of the request is not whole or not below 2^52'}
end
if mine and (proposed < 2 * mine.target or proposed > 3600000000) or heard > 3600000000 then
  return {'invalid', 'a ttl is out of range'}
end

-- Step 1.
local now
if argv[2] == '' then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = string.find(argv[2], '^%d+$') and tonumber(argv[2])
  if not now or now >= 2^52 then return {'invalid', 'the time is out of range'} end
end

-- What is stored.
local c, exists, changed = nil, true, false
local birth, epoch, counter, created, was, frozen, ttl, width, gen, moved, landing, updated, contended, share
local held, weights, base, ledger, active
local text = redis.pcall('GET', keys[1])
if not text then
  exists = false
elseif text.err then
  return string.find(text.err, 'WRONGTYPE') and {'damaged', keys[1], text.err} or text -- an error as it is: a missing permission
else
  local n = (#text - 280) / 72 -- 32 numbers and 5 of the configuration, and 9 for each limit; but the first needs 2 fewer
  if n ~= 1 and n ~= 2 and n ~= 3 and n ~= 4 then return {'damaged', keys[1], 'the length is not that of a bucket'} end
  local stored = string.sub(text, 257, 296 + 56 * n)
  c = mine
  if not mine or stored ~= mine.text then
    c, why = parse(stored)
    if not c then return {'damaged', keys[1], why} end
  end
  local level, rest
  birth, epoch, counter, created, was, frozen, ttl, width, gen, moved, landing, updated, contended, share, level, rest =
    decode('<dddddddddddddddd', text)
  if not (birth % 1 + epoch % 1 + counter % 1 + created % 1 + was % 1 + frozen % 1 + ttl % 1 + width % 1 + gen % 1 + moved % 1
      + landing % 1 + updated % 1 + contended % 1 == 0)
      or max(birth, epoch, counter, created, -created, gen, moved, landing, updated, contended, -contended) >= 2^53
      or min(birth, epoch, counter, was, frozen, gen, moved, landing, updated) < 0 then
    return {'damaged', keys[1], 'a number of the state is out of range'}
  end
  if was >= 2^52 or frozen > was + 3600000000 then return {'damaged', keys[1], 'a time is out of range'} end
  if ttl < 2 or ttl > 3600000000 or width < 1 or width > 3600000000 then return {'damaged', keys[1], 'a duration is out of range'} end
  if not (share > 0 and share < 2^53) then return {'damaged', keys[1], 'the share is out of range'} end
  local h1, h2, h3, h4, h5, h6, h7, h8, w1, w2, w3, w4, w5, w6, w7, w8 = decode('<dddddddddddddddd', text, 129)
  ledger, active = h1 + h2 + h3 + h4 + h5 + h6 + h7 + h8, w1 + w2 + w3 + w4 + w5 + w6 + w7 + w8
  if not (h1 % 1 + h2 % 1 + h3 % 1 + h4 % 1 + h5 % 1 + h6 % 1 + h7 % 1 + h8 % 1
      + w1 % 1 + w2 % 1 + w3 % 1 + w4 % 1 + w5 % 1 + w6 % 1 + w7 % 1 + w8 % 1 == 0)
      or min(h1, h2, h3, h4, h5, h6, h7, h8, w1, w2, w3, w4, w5, w6, w7, w8) < 0 or ledger >= 2^52 or active >= 2^52 then
    return {'damaged', keys[1], 'the ledger is out of range'}
  end
  held, weights = {h1, h2, h3, h4, h5, h6, h7, h8}, {w1, w2, w3, w4, w5, w6, w7, w8}
  for k = 1, n do
    local l = c[k]
    if k > 1 then level, rest = decode('<dd', text, 265 + 56 * n + 16 * k) end
    if not (level % 1 + rest % 1 == 0) or level < 0 or level > l.burst * l.unit or rest < 0 or rest >= l.tick then
      return {'damaged', keys[1], 'a level is out of range'}
    end
    l.level, l.rest = level, rest
  end
  base = floor(was / width)

  -- Step 1 for a clock that went back: every holding may last as long as the whole ring.
  if now < was then
    local back = was - now
    width, base, gen, moved, landing, held, weights = move(was, now, width, gen, ledger, active)
    frozen = frozen > was and frozen - back or 0
    created, contended, was = created - back, contended - back, now
  end

  -- Steps 2 and 3.
  local last, ends = base + 8, (base + 1) * width
  while ends <= now and base < last do
    local slot = base % 8 + 1
    if held[slot] ~= 0 then -- refill with the old ledger up to the moment at which this slice ran out
      refill(c, max(was, frozen), ends, ledger)
      was = ends
    end
    ledger, active = ledger - held[slot], active - weights[slot]
    held[slot], weights[slot] = 0, 0
    base = base + 1
    ends = (base + 1) * width
  end
  base = floor(now / width)
  refill(c, was > frozen and was or frozen, now, ledger)
end

-- What configure.lua is asked for.
if op then
  if op == 'set' or op == 'set-if-absent' then
    if not mine then return {'invalid', 'there is no configuration to set'} end
    if op == 'set' or not c or c.revision == 0 then
      local deploy, revision = mine.deploy, 0
      if c then deploy, revision = max(deploy, c.deploy), c.revision end
      changed = true
      mine, why = parse(encode('<dd', deploy, revision + 1) .. string.sub(mine.text, 17))
      if not mine then return {'invalid', why} end
    end
  elseif op == 'reset' then
    changed = exists
  elseif op ~= 'inspect' then
    return {'invalid', 'no such operation'}
  end
  if not changed or op == 'reset' then mine = nil end
elseif not mine then
  return {'invalid', 'there is no configuration'}
end

-- What the caller changes.
local lost = 0 -- for how long nothing refills, where the caller proves that state was lost
if not exists then
  if not mine then return {'ok', 0, 0} end
  c, ttl = mine, proposed
  -- Its birth tells the records of a bucket from those that an earlier bucket of this key left behind; the epoch cannot,
  -- because a failover may move it back to an earlier bucket's.
  birth, epoch, counter, created, frozen, updated, contended, share = now, max(now, 1), 0, now, 0, now, 0, c.speed
  width, gen, moved, landing, ledger, active = floor((ttl + 6) / 7), 0, 0, 0, 0, 0
  base, held, weights = floor(now / width), {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}
  for k = 1, c.n do c[k].level = c.empty and 0 or c[k].burst * c[k].unit end
  if seen > 0 then lost, epoch = max(ttl, heard), max(now, seen + 1) end
elseif seen > 0 then
  if seen > epoch or seen == epoch and counted > counter then -- a failover lost writes
    lost = max(ttl, heard)
    epoch, counter = seen + 1, counted -- what the records say was overtaken, so none of them counts
  elseif seen < epoch and now - created < max(ttl, heard) then -- a bucket was lost, and somebody who did not know made this one
    lost = max(ttl, heard)
  end
end
if lost > 0 then
  for k = 1, c.n do c[k].level, c[k].rest = 0, 0 end
  frozen = max(frozen, now + lost)
end
if mine then
  -- A configuration whose version is higher is taken over, and a longer ttl at once.
  local old = ttl
  if mine.deploy > c.deploy or mine.deploy == c.deploy and mine.revision > c.revision then
    -- A raised burst keeps the level, a lowered one what was used; a limit that is new starts full.
    ttl, share = proposed, share * (mine.speed / c.speed)
    for k = 1, mine.n do
      local from, to = c[k], mine[k]
      if from then
        local level = from.level
        if from.burst > to.burst then level = max(0, level - (from.burst - to.burst) * from.unit) end
        local whole = floor(level / from.unit)
        -- part is floor(left*to.unit/from.unit), bit by bit, so that no product passes 2^53.
        local left, part, over, y, bit = level - whole * from.unit, 0, 0, to.unit, 2^51
        while bit >= 1 do
          part, over = 2 * part, 2 * over
          if over >= from.unit then part, over = part + 1, over - from.unit end
          if y >= bit then
            y, over = y - bit, over + left
            if over >= from.unit then part, over = part + 1, over - from.unit end
          end
          bit = bit / 2
        end
        to.level = whole * to.unit + part
      else
        to.level = now < frozen and 0 or to.burst * to.unit
      end
    end
    c = mine
  elseif proposed > ttl then
    ttl = proposed
  end

  -- The ring adapts to a changed ttl; the expiry of an entry never moves earlier.
  local fit = floor((ttl + 6) / 7)
  if fit ~= width or ttl > old then
    if fit < width then
      local ends = 0 -- of the last slice with an entry
      for s = base, base + 7 do
        if held[s % 8 + 1] ~= 0 or weights[s % 8 + 1] ~= 0 then ends = (s + 1) * width end
      end
      if (floor(now / fit) + 8) * fit < ends then fit = width end
    end
    if fit ~= width or ttl > old then
      width, base, gen, moved, landing, held, weights = move(now, now, fit, gen, ledger, active)
    end
  end
elseif op == 'reset' then
  for k = 1, c.n do
    local l = c[k]
    l.level, l.rest = (c.empty or now < frozen) and 0 or l.burst * l.unit, 0
  end
end
if changed or not op then -- the clip
  for k = 1, c.n do
    local l = c[k]
    l.level = min(l.level, capacity(l, ledger))
  end
end
