-- change.lua makes the changes of step 2 (docs/protocol.md section 6): a new bucket, a proven loss, another
-- configuration, T, and the clip. change.lua ends the call with {'invalid', why} or {'ok', 0, 0}, or
-- continues with a bucket that exists and the configuration in force in c. `changed` says whether
-- configure.lua changes anything.

-- Prepare the operation of configure.lua (6.15).
if op then
  if op == 'set' or op == 'replace' or op == 'clear' then
    if not mine then return {'invalid', 'there is no configuration to set'} end
    local deploy, revision = mine.deploy, 0
    if c then deploy, revision = max(deploy, c.deploy), c.revision end
    changed = op ~= 'clear' or revision % 2 == 1
    if changed then
      mine, why = parse(encode('<I7', deploy) .. string.sub(mine.text, 8, 18)
        .. encode('<I7', revision + 1 + (op == 'clear' and 0 or revision % 2)) .. string.sub(mine.text, 26),
        struct, windowRules)
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

-- Create the bucket. Each record stores the bucket's birth, because a failover may move the epoch back to
-- that of an earlier bucket.
if not exists then
  if not mine then return {'ok', 0, 0} end
  c, ttl, proposed, proposedAt, stood = mine, asked, asked, now, now
  birth, epoch, counter, frozen, setAt, keep = now, max(now, 1), 0, 0, max(0, now - 1), 0
  spent, denied = 0, 0
  updated, contended, idle, share = now, 0, 0, c.speed
  width, moved, ledger, active = seldom().widthFor(ttl), 0, 0, 0
  base, ring = floor(now / width), {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  for k = 1, c.n do
    local l = c[k]
    l.level = (c.empty or l.full == 3153600000000000) and 0 or l.burst * l.unit
  end
  if c.windows then c.windows.begin(c, now, clock, 0) end
end

-- Check whether the caller proves a loss (6.2 to 6.6). An impossible claim proves nothing.
if seen > 0 and (seen ~= epoch or counted > counter or not exists) then
  local leaseMax, heardAt, heardAge, heardExpiry = decode('<I7I7I7I7', argv[3], 51)
  if max(heardAt, heardAge, heardExpiry) >= 2^52 or leaseMax > 7200000000 then
    return {'invalid', 'a fact of the last reply is out of range'}
  end
  if seen <= clock + 86400000000 and (seen < epoch or counted <= now - birth + 86400000000) then
    -- The loss was at least `ago` us ago. Leases from before the loss end at most `lasting` us after the
    -- loss.
    local ago = exists and seen < epoch and now - birth or 0
    local lasting = min(leaseMax + ceil(max(0, clock - heardAt - ago, heardAge - ago) / 8), max(leaseMax, 10000000))
    -- The caller's bucket was lost if it had not expired when the present bucket was created.
    local early, lost = heardAt + heardExpiry > birth, nil
    if not exists then
      epoch, lost = max(epoch, seen + 1), early and now + lasting or nil
    elseif seen >= epoch then -- writes were lost: the new epoch makes every record unknown
      epoch, counter, lost = seen + 1, counted, now + lasting
    elseif early and now < birth + lasting then -- the bucket's creator did not know of the loss
      lost = birth + lasting
    end
    if lost then
      for k = 1, c.n do c[k].level, c[k].rest = min(c[k].level, 0), 0 end
      if c.windows then c.windows.useUp(c, now, ledger) end
      frozen, setAt = max(frozen, lost), now
    end
  end
end

-- Apply the caller's configuration, or a reset. clip says whether a level may then be above its room.
local fill = op == 'reset' or op == 'replace'
local clip = fill
if mine then
  local newer = mine.deploy > c.deploy or mine.deploy == c.deploy and mine.revision > c.revision
  if mine == c then -- the caller's configuration is in force
    stood = now
  elseif newer or mine.deploy == c.deploy and mine.revision == c.revision and now - stood > 2 * ttl then
    keep = remember(c, keep, now, ttl, max(0, frozen - now), base, width, ring)
    -- bare says that the bucket began with a switch, and has no limits beneath the switch (6.17).
    local one = c[1]
    local bare = c.n == 1 and (c.switch == 1 and one.burst == 2^38 and one.step == 100000 and one.unit == 1
      and one.tick == 1 and string.sub(c.text, 53, 60) == '\0\202\154\59\0\0\0\0'
      or c.switch == 2 and one.burst == 1 and one.full == 3153600000000000)
    if mine.switch > 0 and not bare and string.sub(mine.text, 8, 14) == string.sub(c.text, 8, 14) then
      mine = parse(string.sub(mine.text, 1, 30) .. string.sub(c.text, 31), struct, windowRules)
    end
    share = share * (mine.speed / c.speed)
    -- usedUp says that new limits start without tokens (6.12).
    local usedUp = not newer and not bare or mine.empty or now < frozen
    -- Match the old and new limits (6.10): in pass 1 unchanged limits, in pass 2 token buckets of equal
    -- per_ns, in pass 3 the other token buckets. A window continues only a window of its kind, length and
    -- offset.
    local sub, taken, given, alike = string.sub, {}, {}, {}
    for pass = 1, bare and 0 or 3 do
      for k = 1, mine.n do
        for i = 1, c.n do
          local from, to = c[i], mine[k]
          if not given[k] and not taken[i] and from.kind == to.kind
              and (not to.kind or from.tick == to.tick and from.offset == to.offset) and (pass == 3
              or sub(c.text, 30 * i + 23, 30 * i + 30) == sub(mine.text, 30 * k + 23, 30 * k + 30)
                and (pass == 2 or from.burst == to.burst and from.unit == to.unit and from.step == to.step
                  and from.tick == to.tick)) then
            given[k], taken[i], alike[k] = from, true, pass == 1
          end
        end
      end
    end
    if mine.windows then mine.windows.begin(mine, now, clock, ledger) end
    for k = 1, mine.n do
      local from, to = given[k], mine[k]
      if to.kind then
        mine.windows.follow(to, from, usedUp, ledger, now)
      elseif from then
        seldom(capacity, dropFullRest).follow(to, from, alike[k])
      elseif not usedUp and to.full ~= 3153600000000000 then
        to.level = to.burst * to.unit
      end
    end
    c, stood, clip = mine, now, true
    if now >= frozen then setAt = now end -- nothing is drawn during a freeze
  end

  -- T follows the proposals of the callers (6.7).
  if asked > 10000000 and asked > ttl then asked = max(ttl, 10000000) end
  if newer or asked > ttl then -- T grows by at most an eighth of the time since the last call
    ttl = min(asked, ttl + floor(passed / 8))
    proposed, proposedAt = ttl, now
  else
    if asked > proposed then proposed = asked end
    if now - proposedAt >= 3000000 or asked == ttl and proposed == ttl then
      ttl, proposed, proposedAt = proposed, asked, now
    end
  end

  -- The width of a slice follows T (6.8). No entry of the ring ends earlier than before.
  local fit = width
  if ttl > 7 * width then
    fit = seldom().widthFor(ttl)
  elseif width > 1 and 2 * ttl <= 7 * width and now - moved >= 16 * width then
    fit = width / 2
    local _, left = remember(c, keep, now, ttl, 0, base, width, ring)
    if now + left > (floor(now / fit) + 8) * fit then fit = width end
  end
  if fit ~= width then
    local new = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
    for s = base, base + 7 do
      local from, to = s % 8 + 1, floor(((s + 1) * width - 1) / fit) % 8 + 1
      new[to], new[to + 8] = new[to] + ring[from], new[to + 8] + ring[from + 8]
    end
    width, base, moved, ring = fit, floor(now / fit), now, new
  end
end
if fill and changed then
  for k = 1, c.n do
    local l = c[k]
    local empty = c.empty or l.full == 3153600000000000 or now < frozen
    l.level, l.rest = empty and 0 or l.burst * l.unit, 0
  end
  if c.windows then c.windows.begin(c, now, clock, ledger) end
  setAt = now
end
if clip then
  for k = 1, c.n do
    local l = c[k]
    l.level = min(l.level, capacity(l, ledger))
  end
end
