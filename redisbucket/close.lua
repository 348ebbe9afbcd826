-- close.lua: the writes of a call. It checks everything before the first write, because a script that
-- fails half way keeps its writes. An operation that changes nothing writes nothing.
--
-- It takes all that open.lua lists; answer, the reply but its levels; frost, how long nothing refills;
-- headroom; record, the text of the holder's record, or nil to leave that as it is; and recordLife, how
-- long to keep it. KEYS and units: common.lua. The bucket is written first: if the server then refuses
-- the record, tokens are lost, and none is drawn twice.

local places = #answer
for k = 1, c.switch > 0 and 0 or c.n do
  local l = c[k]
  local whole = floor(l.level / l.unit)
  answer[places + 2 * k - 1] = headroom > 0 and whole - ceil(l.burst * headroom) or whole
  answer[places + 2 * k] = wait(l, whole + 1, frost)
end
if c.switch == 1 then
  answer[places + 1], answer[places + 2] = 2^38 - ceil(2^38 * headroom), 0
elseif c.switch == 2 then
  answer[places + 1], answer[places + 2] = 0 - ceil(headroom), 3153600000000000
end
if op and not changed then return answer end
if not (share > 0 and share < 2^53 and keep < 2^53 and contended < 2^53 and epoch < 2^52
    and counter < 2^52 and now < 2^52 and ledger < 2^52 and active < 2^52) then
  return {'damaged', keys[1], 'the state would be out of range'}
end
local h, w, text = held, weights, nil
-- The short form leaves out the fields that open.lua derives when it reads that form.
local short = not c.windows and c.switch == 0 and moved == now and updated == now
  and contended == 0 and idle == 0 and share == c.speed
  and ledger == 0 and active == 0 and width == widthFor(ttl) and birth == epoch and clock == now
  and frozen == 0 and stood == now and proposed == ttl and proposedAt == now
  and counter < 2^48 and spent < 2^48 and denied < 2^48 and keep == remember(c, 0, now, ttl, 0)
for k = 1, c.n do short = short and c[k].level >= 0 end
if short then
  text = encode('<I2I7I6I7I4I6I6', mark, epoch, counter, now, ttl, spent, denied)
  for k = 1, c.n do text = text .. encode('<I7I3', c[k].level, c[k].rest) end
  text = text .. c.text
  if setAt ~= epoch - 1 then text = text .. encode('<I7', setAt) end
else
  local tail = c.windows and c.windows.text(c)
  text = encode('<I2ddddddddddddddddddddddddddddddddddddddc0', mark, birth, epoch, counter, spent, denied,
    clock, now, frozen, setAt, keep, stood, ttl, proposed, proposedAt, width, moved, updated,
    contended, idle, share,
    c[1].level, c[1].rest, h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8],
    w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], c.text)
  for k = 2, c.n do text = text .. encode('<dd', c[k].level, c[k].rest) end
  if tail then text = text .. tail end
end

-- A key may be forgotten late, never early: it gets a second more. %d is faster than %.0f, but on
-- some machines it is right below 2^31 only.
local life = ceil((keep - now) / 1000) + 1000
call('SET', keys[1], text, 'PX', format(life < 2^31 and '%d' or '%.0f', life))
if record then
  life = ceil(recordLife / 1000) + 1000
  call('SET', keys[2], record, 'PX', format(life < 2^31 and '%d' or '%.0f', life))
end
return answer
