-- Looks at every piece of a shard, removes what belongs to nothing, gives back what nothing leads to, and counts anew. Costs as much as the
-- shard has pieces: after a gap was skipped, and when an audit finds a disagreement.
local recount
function recount(s)
  local fixed = {redelivered = 0, dangling = 0, counters = 0}
  settleDone(s)
  local p = s.p
  local function drop(...)
    fixed.dangling = fixed.dangling + 1
    call(...)
  end

  -- Settled ranges: those below the frontier are gone.
  local key = B .. 'A:' .. p
  local ranges, ahead = {}, 0
  local raw = call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #raw, 2 do
    local a, b = tonumber(raw[i + 1]), tonumber(raw[i])
    if b <= s.f or a >= b then
      call('ZREM', key, raw[i])
    else
      if a < s.f then
        a = s.f
        call('ZADD', key, a, raw[i])
      end
      local last = ranges[#ranges]
      if a == s.f then
        s.f = b
        call('ZREM', key, raw[i])
      elseif last and a <= last[2] then -- touching ranges become one
        call('ZREM', key, fmt('%d', last[2]))
        ahead = ahead + math.max(last[2], b) - last[2]
        last[2] = math.max(last[2], b)
        call('ZREM', key, raw[i])
        call('ZADD', key, fmt('%d', last[1]), fmt('%d', last[2]))
      else
        ranges[#ranges + 1] = {a, b}
        ahead = ahead + b - a
      end
    end
  end
  if s.c < s.f then s.c = s.f end
  local function settled(o)
    if o < s.f then return true end
    local lo, hi = 1, #ranges
    while lo <= hi do
      local mid = math.floor((lo + hi) / 2)
      if o < ranges[mid][1] then hi = mid - 1 elseif o >= ranges[mid][2] then lo = mid + 1 else return true end
    end
    return false
  end

  local P, offsets = {}, {}
  raw = call('HGETALL', B .. 'P:' .. p)
  for i = 1, #raw, 2 do
    P[raw[i]] = parsePointer(raw[i + 1])
    offsets[#offsets + 1] = raw[i]
  end
  table.sort(offsets)
  local lost = false
  for _, o in ipairs(offsets) do
    local x, is = P[o], settled(tonumber(o))
    if x.det and not is then -- what the pointer says is settled was settled once
      settleOne(s, o)
      lost = true
    elseif is and not x.det and tonumber(o) >= s.f then
      x.det = true
      putPointer(s, o, x)
    end
    x.det = is
  end
  if lost then
    s.ahead = ahead
    settleDone(s)
    fixed = recount(s)
    fixed.counters = fixed.counters + 1
    return fixed
  end
  local function loose(o) return settled(tonumber(o)) end
  local t = {i = 0, ia = 0, blocks = 0, owed = 0, owedA = 0, dl = 0, wait = 0, waitA = 0, dead = 0, copyA = 0, pre = 0}
  local seen = {}
  local function living(o)
    local x = P[o]
    if x then return x.kind ~= DEAD end
    return not settled(tonumber(o))
  end
  call('DEL', B .. 'B:' .. p, B .. 'Y:' .. p)

  -- Leases.
  raw = call('HGETALL', B .. 'L:' .. p)
  for j = 1, #raw, 2 do
    local nonce, b = raw[j], parseBlock(raw[j + 1])
    local member = p .. ':' .. nonce
    local score, live, changed, least = call('ZSCORE', B .. 'X', member), false, false, nil
    for _, x in ipairs(b) do
      local states = {}
      for k = 1, x.n do
        local state, o = sub(x.st, k, k), pad(x.s + k - 1)
        if state == 'L' or state == 'M' then
          if seen[o] or not living(o) then
            state, changed, fixed.dangling = 'N', true, fixed.dangling + 1
          else
            local right = loose(o) and 'M' or 'L'
            if right ~= state then state, changed = right, true end
            seen[o], live = true, true
            if not least or x.e < least then least = x.e end
            t.i = t.i + 1
            if state == 'L' then t.ia = t.ia + 1 else call('ZADD', B .. 'B:' .. p, o, o) end
          end
        end
        states[k] = state
      end
      x.st = table.concat(states)
    end
    if live then t.blocks = t.blocks + 1 end
    if changed or not score or (least and tonumber(score) > least) or (not least and tonumber(score) >= 0) then
      if not score then fixed.dangling = fixed.dangling + 1 end
      b.live = false
      saveBlock(s, nonce, b)
    end
  end

  -- Owed and scheduled.
  for _, o in ipairs(call('ZRANGE', B .. 'O:' .. p, 0, -1)) do
    local x = P[o]
    if seen[o] or x and x.kind == DEAD then -- one whose pointer is gone is delivered once more: rather repeated than lost
      drop('ZREM', B .. 'O:' .. p, o)
      s.oweChanged = true
    else
      seen[o] = true
      if x and x.kind == SCHEDULED then
        t.dl = t.dl + 1
        call('ZADD', B .. 'Y:' .. p, o, o)
      else
        t.owed = t.owed + 1
        if loose(o) then call('ZADD', B .. 'B:' .. p, o, o) else t.owedA = t.owedA + 1 end
      end
    end
  end

  -- Waiting records, by key.
  local function waits(o, remove)
    if seen[o] or not living(o) then
      fixed.dangling = fixed.dangling + 1
      remove()
      return
    end
    seen[o] = true
    t.wait = t.wait + 1
    if loose(o) then call('ZADD', B .. 'B:' .. p, o, o) else t.waitA = t.waitA + 1 end
  end
  for _, w in ipairs(call('ZRANGE', B .. 'W:' .. p, 0, -1)) do
    waits(sub(w, -16), function() call('ZREM', B .. 'W:' .. p, w) end)
  end
  if fair then
    local keys = {}
    for _, kh in ipairs(call('HVALS', B .. 'KO:' .. p)) do keys[kh] = true end
    for _, pair in ipairs(call('ZRANGE', B .. 'FQ', 0, -1)) do
      local pp, kh = match(pair, '^(%d+):(.+)$')
      if pp == p then keys[kh] = true end
    end
    for kh in pairs(keys) do
      local pair = p .. ':' .. kh
      for _, o in ipairs(call('ZRANGE', B .. 'FW:' .. pair, 0, -1)) do
        waits(o, function() call('ZREM', B .. 'FW:' .. pair, o) end)
      end
      if call('EXISTS', B .. 'FW:' .. pair) == 1 then
        call('ZADD', B .. 'FQ', 'NX', m.tick, pair)
      else
        call('ZREM', B .. 'FQ', pair)
      end
    end
  end

  -- Dead letters.
  for _, o in ipairs(offsets) do
    local x = P[o]
    if x.kind == DEAD then
      t.dead = t.dead + 1
      call('ZADD', B .. 'D', 'NX', x.last, p .. ':' .. o)
      if x.copy then
        call('ZADD', B .. 'C', 'NX', x.last, p .. ':' .. o)
        copies = 1
        if not x.det then
          t.copyA = t.copyA + 1
          seen[o] = true
        end
      end
    end
  end

  -- What is neither settled nor found anywhere is owed at once.
  local cursor = s.c
  local function giveBack(o)
    local x, kh = P[o], ordered and call('HGET', B .. 'KO:' .. p, o) or nil
    fixed.redelivered = fixed.redelivered + 1
    seen[o] = true
    if kh and call('HSETNX', B .. 'K:' .. p, kh, o) == 0 and call('HGET', B .. 'K:' .. p, kh) ~= o then
      call('ZADD', B .. 'W:' .. p, 0, kh .. ':' .. o)
      t.wait = t.wait + 1
      if loose(o) then call('ZADD', B .. 'B:' .. p, o, o) else t.waitA = t.waitA + 1 end
      return
    end
    local due = math.max(now, x and x.due or 0)
    call('ZADD', B .. 'O:' .. p, due, o)
    s.oweChanged = true
    if due <= now then freed = freed + 1 else event(due) end
    if x and x.kind == SCHEDULED then
      t.dl = t.dl + 1
      call('ZADD', B .. 'Y:' .. p, o, o)
    else
      t.owed = t.owed + 1
      if loose(o) then call('ZADD', B .. 'B:' .. p, o, o) else t.owedA = t.owedA + 1 end
    end
  end
  for _, o in ipairs(offsets) do
    if P[o].kind ~= DEAD and not seen[o] then giveBack(o) end
  end
  local o = s.f
  local next = 1
  while o < cursor do
    if ranges[next] and o == ranges[next][1] then
      o, next = ranges[next][2], next + 1
    else
      if not seen[pad(o)] then giveBack(pad(o)) end
      o = o + 1
    end
  end
  for _, r in ipairs(ranges) do
    if r[2] > cursor then t.pre = t.pre + r[2] - math.max(r[1], cursor) end
  end
  for id in pairs(seen) do
    local n = tonumber(id)
    if n >= cursor and not settled(n) then t.pre = t.pre + 1 end
  end

  -- Keys: a lock's owner is leased, owed or scheduled, and a waiting record's key is locked.
  if keyed then
    for id, x in pairs(P) do
      if x.kind ~= DEAD and x.kh ~= '0' then call('HSETNX', B .. 'KO:' .. p, id, x.kh) end
    end
    for _, id in ipairs(call('HKEYS', B .. 'KO:' .. p)) do
      if not seen[id] then drop('HDEL', B .. 'KO:' .. p, id) end
    end
  end
  if ordered then
    local waiting = {}
    for _, w in ipairs(call('ZRANGE', B .. 'W:' .. p, 0, -1)) do waiting[sub(w, -16)] = sub(w, 1, -18) end
    local locks = call('HGETALL', B .. 'K:' .. p)
    for i = 1, #locks, 2 do
      local owner = locks[i + 1]
      if not seen[owner] or waiting[owner] then
        drop('HDEL', B .. 'K:' .. p, locks[i])
      else
        call('HSETNX', B .. 'KO:' .. p, owner, locks[i])
      end
    end
    raw = call('HGETALL', B .. 'KO:' .. p)
    for i = 1, #raw, 2 do
      if not waiting[raw[i]] then call('HSETNX', B .. 'K:' .. p, raw[i + 1], raw[i]) end
    end
    for _, w in ipairs(call('ZRANGE', B .. 'W:' .. p, 0, -1)) do
      local id, kh = sub(w, -16), sub(w, 1, -18)
      call('HSET', B .. 'KO:' .. p, id, kh)
      if call('HEXISTS', B .. 'K:' .. p, kh) == 0 then
        call('ZREM', B .. 'W:' .. p, w)
        t.wait = t.wait - 1
        if not loose(id) then t.waitA = t.waitA - 1 end
        giveBack(id)
      end
    end
  end
  if fair then
    local counts = {}
    local ko = {}
    raw = call('HGETALL', B .. 'KO:' .. p)
    for i = 1, #raw, 2 do ko[raw[i]] = raw[i + 1] end
    raw = call('HGETALL', B .. 'L:' .. p)
    for j = 1, #raw, 2 do
      for _, x in ipairs(parseBlock(raw[j + 1])) do
        for k = 1, x.n do
          if find(sub(x.st, k, k), '[LM]') then
            local kh = ko[pad(x.s + k - 1)] or '0'
            counts[kh] = (counts[kh] or 0) + 1
          end
        end
      end
    end
    for _, pair in ipairs(call('HKEYS', B .. 'F')) do
      local pp, kh = match(pair, '^(%d+):(.+)$')
      if pp == p and not counts[kh] then call('HDEL', B .. 'F', pair) end
    end
    for kh, n in pairs(counts) do
      call('HSET', B .. 'F', p .. ':' .. kh, n)
      local score = call('ZSCORE', B .. 'FQ', p .. ':' .. kh)
      if score then call('ZADD', B .. 'FQ', n * TURN + tonumber(score) % TURN, p .. ':' .. kh) end
    end
  end

  if ahead ~= s.ahead then fixed.counters, s.ahead = fixed.counters + 1, ahead end
  for k, v in pairs(t) do
    if s[k] ~= v then fixed.counters, s[k] = fixed.counters + 1, v end
  end
  s.changed, s.oweChanged = true, true
  return fixed
end

-- Retention has deleted what is below start: the frontier passes it. Leased, owed and waiting records below it are told by reading them: they
-- are skipped then and unlock their keys.
local function skipGap(s, start)
  durable(s)
  local key = B .. 'A:' .. s.p
  if s.c <= start then
    local known = 0 -- beyond the cursor, settled or with a pointer
    if s.pre > 0 then
      local raw = call('ZRANGE', key, 0, -1, 'WITHSCORES')
      for i = 1, #raw, 2 do
        local a, b = math.max(tonumber(raw[i + 1]), s.c), math.min(tonumber(raw[i]), start)
        if a < b then known = known + b - a end
      end
    end
    s.skipped = s.skipped + (start - s.c) - known
    s.c = start
  end
  s.f = start
  recount(s)
end
