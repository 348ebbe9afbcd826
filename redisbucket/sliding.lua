-- sliding.lua counts the charges of a sliding window in cells (docs/protocol.md section 3.10). l.cells[j %
-- 61] has the tokens of cell j, which covers [j * cell, (j + 1) * cell) of the running time.
--
-- The stored rest of a sliding window is the number of its charged cells. The bucket's text ends with these
-- cells, the oldest first: 1 byte for the cell's number, counted from the oldest live cell, and 7 bytes for
-- its tokens.

local function sliding()
  local rules, floor, max, min = {}, math.floor, math.max, math.min

  -- limit adds the fields of a sliding window to window l, and returns whether l's numbers are valid.
  function rules.limit(l)
    l.cell = max(1000, floor((l.tick + 59) / 60))
    l.full, l.first, l.cells = l.tick + l.cell, 0, {}
    return l.offset == 0
  end

  function rules.clear(l) l.cells = {} end

  function rules.pass(l, now, clock)
    local first = max(0, floor((now - l.tick) / l.cell))
    for j = l.first, min(first, l.first + 61) - 1 do
      local i = j % 61
      l.sum, l.cells[i] = l.sum - (l.cells[i] or 0), nil
    end
    l.first = max(l.first, first)
  end

  function rules.add(l, at, n)
    local i = floor(at / l.cell) % 61
    l.cells[i] = (l.cells[i] or 0) + n
  end

  function rules.remove(l, n)
    local j = l.first
    while n > 0 do
      local i = j % 61
      local took = min(n, l.cells[i] or 0)
      if took > 0 then l.cells[i], n = l.cells[i] - took, n - took end
      j = j + 1
    end
  end

  function rules.covers(l, at) return floor(at / l.cell) >= l.first end

  -- next returns the time until cells with `missing` tokens are dropped. If no cell is charged, the missing
  -- tokens are leased, and next returns the Target.
  function rules.next(l, missing)
    local at = 0
    for j = l.first, l.first + 60 do
      local charged = l.cells[j % 61] or 0
      if charged > 0 and missing > 0 then
        at, missing = (j + 1) * l.cell + l.tick, missing - charged
      end
    end
    return at == 0 and l.target or at - l.now
  end

  function rules.read(l, text, at, count, was, before)
    if count > 61 or at + 8 * count - 1 > #text then return nil end
    l.first = max(0, floor((was - l.tick) / l.cell))
    local last, total = -1, 0
    for i = 1, count do
      local age, n = decode('<I1I7', text, at)
      if age <= last or l.first + age > was / l.cell or n < 1 then return nil end
      l.cells[(l.first + age) % 61], last, total, at = n, age, total + n, at + 8
    end
    return total == l.sum and at or nil
  end

  -- text returns the stored text of window l, and the number of its charged cells.
  function rules.text(l)
    local parts = {}
    for j = l.first, l.first + 60 do
      local charged = l.cells[j % 61] or 0
      if charged > 0 then parts[#parts + 1] = encode('<I1I7', j - l.first, charged) end
    end
    return table.concat(parts), #parts
  end

  function rules.follow(to, from) to.cells, to.first = from.cells, from.first end

  return rules
end
