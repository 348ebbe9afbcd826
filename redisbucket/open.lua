-- open.lua: what every call finds. It settles the bucket at the present time and makes the changes
-- that the caller may make: docs/protocol.md section 4, steps 1 and 2, with steps 3 in between, and
-- section 6. It writes nothing. KEYS, ARGV and units: common.lua.
--
-- Steps:
--   1  the time, read once
--   2  refill with the OLD ledger, in pieces that end where slices end; then lost state, the
--      configuration, and the clip
--   3  forget the slices that have ended
--
-- It ends the call with {'invalid', why} or {'damaged', key, why}, or leaves in local variables:
--   exists           whether the bucket was there
--   c                the configuration in force; its limits c[1] to c[c.n] hold the levels
--   changed          whether configure.lua changes anything
--   clock now birth epoch counter spent denied frozen setAt keep updated contended share
--   ttl proposed proposedAt             the T in force, and the longest proposed since proposedAt
--   stood reshaped   when the configuration was last proposed, and last changed
--   width base gen moved held weights   the ring; base is the slice in which now lies
--   ledger active    the sums of held and of weights
--   the request

local call, keys, argv = redis.call, KEYS, ARGV
local op = argv[4]

-- The request.
local mine, why
if argv[1] ~= '' then
  mine, why = parse(argv[1])
  if not mine then return {'invalid', why} end
end
-- What the last reply said is read only after a loss. A request of 71 bytes ends before remaining.
local asked, want, seen, counted, refused, seq, need, weight
local remaining, returned, refund, unused, debt, charge, waiting, drawn, headroom, draw
if #argv[3] == 136 then
  asked, want, seen, counted, refused, seq, need, weight = decode('<I4I7I7I7I7I7I7I4', argv[3])
  remaining, returned, refund, unused, debt, charge, waiting, drawn, headroom, draw =
    decode('<I7I7I7I7I7I7I7I7dI1', argv[3], 72)
elseif #argv[3] == 71 then
  asked, want, seen, counted, refused, seq, need, weight = decode('<I4I7I7I7I7I7I7I4', argv[3])
  remaining, returned, refund, unused, debt, charge, waiting, drawn, headroom, draw =
    0, 0, 0, 0, 0, 0, want, 0, 0, 1
else
  return {'invalid', 'the length is not that of a request'}
end
if seq >= 2^52 or remaining >= 2^52 or returned >= 2^52 or refund >= 2^52 or unused >= 2^52
    or debt >= 2^52 or charge >= 2^52 or want >= 2^52 or need >= 2^52 or waiting >= 2^52 or drawn >= 2^52
    or weight >= 2^52 or seen >= 2^52 or counted >= 2^52 or refused >= 2^52 then
  return {'invalid', 'a number of the request is not below 2^52'}
end
if headroom ~= 0 and not (headroom > 0 and headroom < 1) then
  return {'invalid', 'the headroom is out of range'}
end
if draw > 1 or draw == 1 and (want ~= waiting or remaining + returned + refund + unused > 0) then
  return {'invalid', 'a draw that brings something back, or wants more than waits'}
end
if mine and (asked < 2 * mine.target or asked > 3600000000) then
  return {'invalid', 'the ttl is out of range'}
end

-- Step 1.
local clock
if argv[2] == '' then
  local t = call('TIME')
  clock = t[1] * 1000000 + t[2]
else
  clock = string.find(argv[2], '^%d+$') and tonumber(argv[2])
  if not clock or clock >= 2^52 then return {'invalid', 'the time is out of range'} end
end

-- What is stored.
local c, exists, changed, now = nil, true, false, clock
local birth, epoch, counter, spent, denied, frozen, setAt, keep, stood, reshaped, ttl, proposed, proposedAt
local width, gen, moved, updated, contended, share
local held, weights, base, ledger, active
local text = redis.pcall('GET', keys[1])
if not text then
  exists = false
elseif text.err then
  -- Any other error is the caller's, for instance a missing permission.
  return string.find(text.err, 'WRONGTYPE') and {'damaged', keys[1], text.err} or text
else
  local n, short, dated = (#text - 326) / 46, false, false
  if n ~= 1 and n ~= 2 and n ~= 3 and n ~= 4 then n, short = (#text - 66) / 40, true end
  if n ~= 1 and n ~= 2 and n ~= 3 and n ~= 4 then n, dated = (#text - 80) / 40, true end
  if n ~= 1 and n ~= 2 and n ~= 3 and n ~= 4 then
    return {'damaged', keys[1], 'the length is not that of a bucket'}
  end
  local stored = short and string.sub(text, 37 + 10 * n, 66 + 40 * n) or string.sub(text, 313, 342 + 30 * n)
  c = mine
  if not mine or stored ~= mine.text then
    c, why = parse(stored)
    if not c then return {'damaged', keys[1], why} end
  end
  local before, was, level, rest, h1, h2, h3, h4, h5, h6, h7, h8, w1, w2, w3, w4, w5, w6, w7, w8
  if short then
    epoch, counter, was, ttl, spent, denied, level, rest = decode('<I7I6I7I4I6I6I7I3', text)
    setAt, reshaped = epoch - 1, 0
    if dated then setAt, reshaped = decode('<I7I7', text, 67 + 40 * n) end
    birth, before, frozen, stood, proposed, proposedAt = epoch, was, 0, was, ttl, was
    gen, moved, updated, contended, share = counter, was, was, 0, c.speed
    width = floor((ttl + 6) / 7)
    h1, h2, h3, h4, h5, h6, h7, h8, w1, w2, w3, w4, w5, w6, w7, w8 = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    keep = remember(c, 0, was, ttl, false, 0)
  else
    birth, epoch, counter, spent, denied, before, was, frozen, setAt, keep, stood, reshaped, ttl, proposed,
      proposedAt, width, gen, moved, updated, contended, share, level, rest,
      h1, h2, h3, h4, h5, h6, h7, h8, w1, w2, w3, w4, w5, w6, w7, w8 =
      decode('<ddddddddddddddddddddddddddddddddddddddd', text)
  end
  if not (birth % 1 + epoch % 1 + counter % 1 + spent % 1 + denied % 1 + before % 1 + was % 1 + frozen % 1
        + setAt % 1 + keep % 1 + stood % 1 + reshaped % 1 + ttl % 1 + proposed % 1 + proposedAt % 1 + width % 1
        + gen % 1 + moved % 1 + updated % 1 + contended % 1 == 0)
      or birth < 0 or epoch < 1 or counter < 0 or spent < 0 or denied < 0 or before < 0 or frozen < 0
      or setAt < 0 or keep < 0 or stood < 0 or reshaped < 0 or proposedAt < 0 or gen < 0 or moved < 0 or updated < 0
      or contended < 0 or epoch >= 2^52 or counter >= 2^52 or spent >= 2^52 or denied >= 2^52
      or before >= 2^52 or keep >= 2^53 or gen >= 2^53 or contended >= 2^53 then
    return {'damaged', keys[1], 'a number of the state is out of range'}
  end
  if was >= 2^52 or birth > was or setAt > was or stood > was or reshaped > was or proposedAt > was
      or moved > was or updated > was or frozen > was + 7200000000 then
    return {'damaged', keys[1], 'a time is out of range'}
  end
  if ttl < 2 or ttl > 3600000000 or proposed < 2 or proposed > 3600000000 or width < 1
      or width > 514285715 then -- a seventh of the longest T
    return {'damaged', keys[1], 'a duration is out of range'}
  end
  if not (share > 0 and share < 2^53) then return {'damaged', keys[1], 'the share is out of range'} end
  ledger, active = h1 + h2 + h3 + h4 + h5 + h6 + h7 + h8, w1 + w2 + w3 + w4 + w5 + w6 + w7 + w8
  if not (h1 % 1 + h2 % 1 + h3 % 1 + h4 % 1 + h5 % 1 + h6 % 1 + h7 % 1 + h8 % 1
        + w1 % 1 + w2 % 1 + w3 % 1 + w4 % 1 + w5 % 1 + w6 % 1 + w7 % 1 + w8 % 1 == 0)
      or h1 < 0 or h2 < 0 or h3 < 0 or h4 < 0 or h5 < 0 or h6 < 0 or h7 < 0 or h8 < 0
      or w1 < 0 or w2 < 0 or w3 < 0 or w4 < 0 or w5 < 0 or w6 < 0 or w7 < 0 or w8 < 0
      or ledger >= 2^52 or active >= 2^52 then
    return {'damaged', keys[1], 'the ledger is out of range'}
  end
  held, weights = {h1, h2, h3, h4, h5, h6, h7, h8}, {w1, w2, w3, w4, w5, w6, w7, w8}
  for k = 1, n do
    local l = c[k]
    if k > 1 and short then
      level, rest = decode('<I7I3', text, 27 + 10 * k)
    elseif k > 1 then
      level, rest = decode('<dd', text, 311 + 30 * n + 16 * k)
    end
    if not (level % 1 + rest % 1 == 0) or level > l.burst * l.unit or rest < 0 or rest >= l.tick
        or level < 0 and level < -deepest(l) then
      return {'damaged', keys[1], 'a level is out of range'}
    end
    l.level, l.rest = level, rest
  end
  -- After a step back of at most a second the time stands still until the clock is where it was.
  if clock < before and before - clock <= 1000000 then clock = before end
  now = clock > before and was + (clock - before) or was

  -- Steps 2 and 3.
  base = floor(was / width)
  local last, ends = base + 8, (base + 1) * width
  while ends <= now and base < last do
    local slot = base % 8 + 1
    if held[slot] ~= 0 then
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

-- The operation of configure.lua (section 6.15).
if op then
  if op == 'set' or op == 'set-if-absent' or op == 'replace' then
    if not mine then return {'invalid', 'there is no configuration to set'} end
    if op ~= 'set-if-absent' or not c or c.revision == 0 then
      local deploy, revision = mine.deploy, 0
      if c then deploy, revision = max(deploy, c.deploy), c.revision end
      changed = true
      mine, why = parse(encode('<I7', deploy) .. string.sub(mine.text, 8, 18) .. encode('<I7', revision + 1)
        .. string.sub(mine.text, 26))
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

-- A new bucket. Its birth tells its records from those that an earlier bucket of this key left; a
-- failover may move the epoch back.
if not exists then
  if not mine then return {'ok', 0, 0} end
  c, ttl, proposed, proposedAt, stood, reshaped = mine, asked, asked, now, now, 0
  birth, epoch, counter, frozen, setAt, keep = now, max(now, 1), 0, 0, max(0, now - 1), 0
  spent, denied = 0, 0
  updated, contended, share = now, 0, c.speed
  width, gen, moved, ledger, active = floor((ttl + 6) / 7), 0, 0, 0, 0
  base, held, weights = floor(now / width), {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}
  for k = 1, c.n do
    local l = c[k]
    l.level = (c.empty or l.full == 3153600000000000) and 0 or l.burst * l.unit
  end
end

-- A proof of loss (sections 6.2 to 6.6). A claim to more than can have been heard proves nothing.
if seen > 0 and (seen ~= epoch or counted > counter or not exists) then
  local leaseMax, heardAt, heardAge = decode('<I7I7I7', argv[3], 51)
  if max(heardAt, heardAge) >= 2^52 or leaseMax > 7200000000 then
    return {'invalid', 'what was heard is out of range'}
  end
  if seen <= clock + 86400000000 and (seen < epoch or counted <= now - birth + 86400000000) then
    -- The loss was at least ago microseconds ago, and leases that were granted before it last at
    -- most lasting microseconds.
    local ago = exists and seen < epoch and now - birth or 0
    local lasting = min(leaseMax + max(0, clock - heardAt - ago, heardAge - ago), max(leaseMax, 10000000))
    local lost
    if not exists then
      epoch, lost = max(epoch, seen + 1), now + lasting
    elseif seen >= epoch then -- writes were lost: the new epoch makes every record unknown
      epoch, counter, lost = seen + 1, counted, now + lasting
    elseif now < birth + lasting then -- this bucket was made by a caller that did not know of the lost one
      lost = birth + lasting
    end
    if lost then
      for k = 1, c.n do c[k].level, c[k].rest = min(c[k].level, 0), 0 end
      frozen, setAt = max(frozen, lost), now
    end
  end
end

-- The caller's configuration, or a reset. clip says whether a level may now be above its room.
local fill = op == 'reset' or op == 'replace'
local clip = fill
if mine then
  local old = ttl
  local newer = mine.deploy > c.deploy or mine.deploy == c.deploy and mine.revision > c.revision
  if mine == c then -- it is what is stored, or was just created
    stood = now
  elseif newer or mine.deploy == c.deploy and mine.revision == c.revision and now - stood > 2 * ttl then
    keep = remember(c, keep, now, ttl, frozen > 0, max(0, frozen - now), base, width, held, weights)
    share = share * (mine.speed / c.speed)
    for k = 1, mine.n do -- as if every limit were new (section 6.12)
      local l = mine[k]
      if l.full == 3153600000000000 or frozen > 0 and now < frozen + l.full then
        l.level = 0
      elseif newer or reshaped == 0 or now - reshaped >= l.full then
        l.level = l.burst * l.unit
      else -- it may have been there before the last change
        l.level = floor((now - reshaped) / l.tick) * l.step
      end
    end
    -- Which limit is which (section 6.10): limits that did not change, then those of equal per_ns,
    -- then the rest in order.
    local sub, taken, given = string.sub, {}, {}
    for pass = 1, 3 do
      for k = 1, mine.n do
        for i = 1, c.n do
          local from, to = c[i], mine[k]
          if not given[k] and not taken[i] and (pass == 3
              or sub(c.text, 30 * i + 23, 30 * i + 30) == sub(mine.text, 30 * k + 23, 30 * k + 30)
                and (pass == 2 or from.burst == to.burst and from.unit == to.unit
                  and from.step == to.step and from.tick == to.tick)) then
            given[k], taken[i] = true, true
            local same = pass == 1
            -- A raised burst keeps the level. A lowered one keeps what was used, or where the
            -- versions are equal what fits. A debt stays, rounded up as what follows rounds down.
            local level = from.level
            if not newer and not same and reshaped > 0 and level > 0
                and from.step / from.unit / from.tick > to.step / to.unit / to.tick then
              -- What a faster limit has refilled since the turn before is worth no more than what
              -- this one would have refilled, in whole tokens.
              local ticks, before = floor((now - reshaped) / from.tick) + 2, 0
              if ticks <= floor((level - 1) / from.step) then before = level - ticks * from.step end
              level = min(level, before + min(floor(to.level / to.unit), from.burst) * from.unit)
            end
            if from.burst > to.burst and level > 0 then
              if newer then
                level = max(0, level - (from.burst - to.burst) * from.unit)
              else
                level = min(level, to.burst * from.unit)
              end
            end
            if to.full == 3153600000000000 and level > 0 and not same then level = 0 end
            local whole = floor(level / from.unit)
            -- part is floor(left * to.unit / from.unit), computed bit by bit so that no product
            -- passes 2^53.
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
            to.level = max(whole * to.unit + part, 0 - deepest(to))
            if same then to.rest = from.rest end
          end
        end
      end
    end
    c, setAt, stood, reshaped, clip = mine, now, now, now, true
  end

  -- T follows what callers propose (section 6.7).
  if asked > 10000000 and asked > ttl then asked = max(ttl, 10000000) end
  if newer and asked <= ttl then
    ttl, proposed, proposedAt = asked, asked, now
  elseif newer or asked > ttl and proposed <= ttl then
    proposed, proposedAt = asked, now
  else
    if asked > proposed then proposed = asked end
    if now - proposedAt >= (proposed > ttl and proposed - ttl or 3000000)
        or asked == ttl and proposed == ttl then
      ttl, proposed, proposedAt = proposed, asked, now
    end
  end

  -- The ring follows T (section 6.8). The expiry of an entry never moves earlier.
  local fit = floor((ttl + 6) / 7)
  if fit ~= width or ttl > old then
    if fit < width then
      local ends = 0 -- when the last slice with an entry ends
      for s = base, base + 7 do
        if held[s % 8 + 1] ~= 0 or weights[s % 8 + 1] ~= 0 then ends = (s + 1) * width end
      end
      if (floor(now / fit) + 8) * fit < ends then fit = width end
    end
    if fit ~= width or ttl > old then -- number the slices anew: every live entry goes into the last
      width, base, gen, moved = fit, floor(now / fit), gen + 1, now
      held, weights = {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}
      held[(base + 7) % 8 + 1], weights[(base + 7) % 8 + 1] = ledger, active
    end
  end
end
if fill and changed then
  for k = 1, c.n do
    local l = c[k]
    local empty = c.empty or l.full == 3153600000000000 or now < frozen
    l.level, l.rest = empty and 0 or l.burst * l.unit, 0
  end
  setAt = now
end
if clip then
  for k = 1, c.n do
    local l = c[k]
    l.level = min(l.level, capacity(l, ledger))
  end
end
