-- close.lua completes the reply and writes the bucket and the record. close.lua checks everything before the
-- first write, because Redis keeps the writes of a script that fails. The bucket is written before the
-- record: if the server refuses the record, tokens are lost, but no token is drawn twice.
--
-- close.lua uses the variables of open.lua. configure.lua adds answer, the reply without levels. lease.lua
-- adds the numbers of the reply, frost (the time left of a freeze), record (the text of the holder's record,
-- or nil to keep the stored one) and recordLife (the record's lifetime in microseconds).

-- Append the levels to the reply: for each limit its whole tokens, and the time until the next token.
for k = 1, c.switch > 0 and 1 or c.n do
  local l, level, next = c[k], 0, 0
  if c.switch == 1 then
    level = 2^38 - ceil(2^38 * headroom)
  elseif c.switch == 2 then
    level, next = 0 - ceil(headroom), 3153600000000000
  else
    level = l.level / l.unit
    level = level - level % 1
    next = wait(l, level + 1, frost)
    if headroom > 0 then level = level - ceil(l.burst * headroom) end
  end
  if op then
    answer[#answer + 1], answer[#answer + 2] = level, next
  elseif k == 1 then
    answer = encode('<I7I7I1I7I7I7I6I7I7I7I7I7I7I7I7I4dI7', seq, granted, flags, delay, retry, epoch, counter,
      active > weight and active or weight, keep - now, longest, frost, last, clock, ledger, target, told, level, next)
  else
    answer = answer .. encode('<dI7', level, next)
  end
end
if not op and c.text ~= mine.text then answer = answer .. c.text end
if op and not changed then return answer end
if not (share > 0 and share < 2^53 and keep < 2^53 and contended < 2^53 and epoch < 2^52
    and counter < 2^48 and now < 2^52 and ledger < 2^52 and active < 2^52) then
  return {'damaged', keys[1], 'the state would be out of range'}
end

-- Leave out the parts whose numbers follow from other numbers (3.9).
local past = owes or birth ~= epoch or clock ~= now or frozen > 0 or stood ~= now or proposed ~= ttl
  or proposedAt ~= now or updated ~= now
local used = past or ledger > 0 or active > 0 or moved ~= now or contended > 0 or idle > 0 or share ~= c.speed
  or 7 * width < ttl or width > 1 and 7 * width >= 2 * ttl or keep ~= remember(c, 0, now, ttl, 0)
local dated = setAt ~= epoch - 1
local form, first = c.n - 1 + (dated and 4 or 0) + (used and 8 or 0) + (past and 16 or 0), c[1]
form = 121 + 256 * (layout + 8 * form) -- the first two bytes of the text
local ending = c.windows and c.text .. c.windows.text(c) or c.text
if past then
  for k = c.n, 1, -1 do ending = encode('<d', min(c[k].level, 0)) .. ending end
  ending = encode('<I7I7I7I7I4I7I7', birth, clock, frozen, stood, proposed, proposedAt, updated) .. ending
end
if dated then ending = encode('<I7', setAt) .. ending end
for k = c.n, 2, -1 do ending = encode('<I7I3', max(c[k].level, 0), c[k].rest) .. ending end
local level, text = first.level > 0 and first.level or 0, nil
if used then
  ring[17] = ending
  text = encode('<I2I7I6I7I4I6I6I7I3dI4I7I7I7I7I7I7I7I7I7I7I7I7I7I7I7I7I7I7I7I7c0', form, epoch, counter, now,
    ttl, spent, denied, level, first.rest, share, width, keep, moved, contended, idle, unpack(ring, 1, 17))
else
  text = encode('<I2I7I6I7I4I6I6I7I3c0', form, epoch, counter, now, ttl, spent, denied, level, first.rest, ending)
end

-- The lifetime gets an extra second, because a key may expire late but never early. Numbers that redis.call
-- passes keep all digits.
local life = keep - now + 1000999
call('SET', keys[1], text, 'PX', (life - life % 1000) / 1000)
if record then call('SET', keys[2], record, 'PX', (recordLife - recordLife % 1000) / 1000) end
return answer
