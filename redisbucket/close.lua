-- close.lua: what a call leaves. Every check comes before the first write, because a script that fails half way keeps what
-- it wrote: nothing that open.lua would refuse is ever stored.
--
-- It takes, from the files before it: everything that open.lua lists; answer, the reply; record, the text of the holder's
-- record, or nil to leave it; and recordLife.
-- The bucket goes first: if the server refuses the record half way, tokens are lost and none is drawn twice.

local h1, h2, h3, h4, h5, h6, h7, h8 = held[1], held[2], held[3], held[4], held[5], held[6], held[7], held[8]
local w1, w2, w3, w4, w5, w6, w7, w8 = weights[1], weights[2], weights[3], weights[4], weights[5], weights[6], weights[7], weights[8]
if not (share > 0 and share < 2^53 and keep < 2^53 and gen < 2^53 and contended < 2^53 and epoch < 2^52 and counter < 2^52
    and now < 2^52 and ledger < 2^52 and active < 2^52) then
  return {'damaged', keys[1], 'the state would be out of range'}
end
local text = encode('<dddddddddddddddddddddddddddddddddddc0', birth, epoch, counter, clock, now, frozen, setAt, keep, ttl, proposed,
  proposedAt, width, gen, moved, updated, contended, share, c[1].level, c[1].rest, h1, h2, h3, h4, h5, h6, h7, h8, w1, w2, w3, w4, w5, w6, w7, w8, c.text)
for k = 2, c.n do text = text .. encode('<dd', c[k].level, c[k].rest) end

-- A key may be forgotten late, never early: a second more. %d is the faster, and on some machines right below 2^31 only.
local life = ceil((keep - now) / 1000) + 1000
life = format(life < 2^31 and '%d' or '%.0f', life)
if record then
  recordLife = ceil(recordLife / 1000) + 1000
  recordLife = format(recordLife < 2^31 and '%d' or '%.0f', recordLife)
end
call('SET', keys[1], text, 'PX', life)
if record then call('SET', keys[2], record, 'PX', recordLife) end
return answer
