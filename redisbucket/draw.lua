-- draw.lua executes a draw of a bucket at rest with one read and one write (docs/protocol.md section 4.1).
-- Rarely used keys make no other calls, so draw.lua comes before the code that creates functions and tables.
--
-- draw.lua serves a request of 78 bytes for a bucket of one limit in the shortest form. The request must
-- propose the stored configuration and the T in force, and must not prove a loss. The bucket must have all
-- wanted tokens and at least the set point (7.1), so that the fair share stays the whole rate. lease.lua
-- would answer the same, and executes all other calls, such as those with an epoch below 2^32, which a server
-- may have cut to 32 bits.
--
-- The reply is a string of integers without a sign. The number after a name is the size of the field in bytes:
--   epoch 7, counter 6, clock 7 (and running time), expiry 7, level 7, next 7

local struct, keys, argv, redis = rawget(_G, 'struct'), KEYS, ARGV, redis
if struct and #argv[3] == 78 then
  if redis.replicate_commands then redis.replicate_commands() end -- see common.lua
  local call, unpack, config, mark = redis.call, struct.unpack, argv[1], 121 + 256 * layout
  local text, clock = redis.pcall('GET', keys[1]), argv[2]
  if #config == 60 and (not text or #text == 108 and string.find(text, config, 49, true)) then
    if clock == '' then
      clock = call('TIME')
      clock = clock[1] * 1000000 + clock[2]
    elseif type(clock) == 'string' then -- draws.lua has read the time
      clock = string.find(clock, '^%d+$') and tonumber(clock) or 0
    end
    local asked, want, seen, counted, refused = unpack('<I4I7I7I7I7', argv[3])
    if not text then -- a new bucket: check the configuration as parse does
      local deploy, over, calls, revision, empty, target, burst, unit, step, code =
        unpack('<I7I7I4I7I1I4I7I7I7I1', config)
      local seq, need, weight = unpack('<I7I7I4', argv[3], 33)
      local most, tick = burst + over, code % 4
      tick = tick == 0 and 1 or tick == 1 and 1000 or 1000000
      if clock < 1 or seen > 0 or counted >= 2^52 or seq < 1 or seq >= 2^52 or need > want or weight < 1
          or weight > 1000000 or deploy >= 2^52 or over >= 2^52 or calls > 1000000000 or revision >= 2^52
          or empty > 0 or target < 1 or target > 3600000000 or burst < 1 or unit < 1
          or step < 1 or step >= 2^52 or most >= 2^52 or most * unit >= 2^52 or code > 6 or code == 3
          or tick > 1 and step * tick >= 2^52 then
        want = 0
      end
      text = struct.pack('<I2I7I6I7I4I6I6I7I3c0', mark, clock, 0, clock, asked, 0, 0,
        want > 0 and burst * unit or 0, 0, config)
    end
    local stored, epoch, counter, now, ttl, spent, denied, level, rest, _, over, _, revision, empty, target,
      burst, unit, step, tick = unpack('<I2I7I6I7I4I6I6I7I3I7I7I4I7I1I4I7I7I7I1', text)
    if tick > 6 then want = 0 end -- a window
    tick = tick % 4
    tick = tick == 0 and 1 or tick == 1 and 1000 or 1000000
    local full = burst * unit
    if stored == mark and asked == ttl and asked >= 2 * target and asked <= 3600000000
        and clock >= now and clock < 2^52 and epoch >= 2^32 and epoch <= now and level <= full and rest < tick
        and (seen == epoch or seen == 0) and counted <= counter and want > 0
        and counter + 1 < 2^48 and spent + want < 2^48 and denied + refused < 2^48 then
      -- Refill the level (step 2).
      if clock > now then
        local room = full - level
        if room <= 0 then
          rest = 0
        else
          rest = clock - now + rest
          local ticks, needed = rest / tick, (room + step - 1) / step
          ticks = ticks - ticks % 1
          if ticks >= needed - needed % 1 then
            level, rest = full, 0
          else
            level, rest, room = level + ticks * step, rest - ticks * tick, room - ticks * step
            if room < step and room * tick <= step * rest then level, rest = full, 0 end
          end
        end
      end
      -- Compute the set point (7.1), and the time to keep the bucket (6.14).
      local tokens, point = level / unit, step / unit / tick * target / 2
      if point < 1 then point = 1 end
      if point > burst / 2 then point = burst / 2 end
      full = (full + over * unit + step - 1) / step
      full = (full - full % 1) * tick
      if want <= tokens and tokens >= point and full < 3153600000000000 then
        local keep = full + 2 * ttl
        if keep < 2592000000000 and (empty == 1 or revision > 0) then keep = 2592000000000 end
        counter, level = counter + 1, level - want * unit
        local life = (keep + 999) / 1000
        call('SET', keys[1], struct.pack('<I2I7I6I7I4I6I6I7I3c0', mark, epoch, counter, clock, ttl,
          spent + want, denied + refused, level, rest, config), 'PX', life - life % 1 + 1000)
        tokens = level / unit
        tokens = tokens - tokens % 1
        local missing = ((tokens + 1) * unit - level + step - 1) / step
        return struct.pack('<I7I6I7I7I7I7', epoch, counter, clock, keep, tokens,
          (missing - missing % 1) * tick - rest)
      end
    end
  end
end
