-- Compares the counters with what is there, cheaply, and recounts where they disagree. ARGV: flags and caps.
if m.ready ~= '1' then return 'NL' end
wakeUp()
local x = B .. 'X'
local ps, live, blocks, dead = {}, 0, 0, 0
local suspects, fixed = {}, {redelivered = 0, dangling = 0, counters = 0}
for _, field in ipairs(call('HKEYS', H)) do
  if match(field, '^%d+$') then
    local s = shard(field)
    local p = s.p
    settleDone(s)
    ps[#ps + 1] = s
    live, blocks, dead = live + s.blocks, blocks + call('HLEN', B .. 'L:' .. p), dead + s.dead
    local owed = call('ZCARD', B .. 'O:' .. p)
    local sum, raw = 0, call('ZRANGE', B .. 'A:' .. p, 0, 999, 'WITHSCORES')
    for i = 1, #raw, 2 do sum = sum + tonumber(raw[i]) - tonumber(raw[i + 1]) end
    local bad = owed ~= s.owed + s.dl or s.f > s.c or #raw < 2000 and sum ~= s.ahead or
      s.c - s.f + s.pre ~= s.ia + s.ahead + s.owedA + s.waitA + s.copyA
    if ordered and not bad then
      local waiting = call('ZCARD', B .. 'W:' .. p)
      bad = waiting ~= s.wait or call('HLEN', B .. 'KO:' .. p) ~= call('HLEN', B .. 'K:' .. p) + waiting
    end
    local head, known = call('ZRANGE', B .. 'O:' .. p, 0, 0, 'WITHSCORES')[2], call('ZSCORE', B .. 'OP', p)
    if not s.oweChanged and head ~= (known or nil) then
      fixed.counters, s.oweChanged = fixed.counters + 1, true
    end
    if s.dirty == '1' and not s.durable and not call('ZSCORE', B .. 'S', p) then
      fixed.counters = fixed.counters + 1
      call('ZADD', B .. 'S', now, p)
      call('ZADD', G .. 'dirty', now, ID)
      m.dirty, m.changed = '1', true
    end
    if bad then suspects[p] = true end
  end
end
if fair then
  local waiting, counted = 0, 0
  for _, pair in ipairs(call('ZRANGE', B .. 'FQ', 0, -1)) do waiting = waiting + call('ZCARD', B .. 'FW:' .. pair) end
  for _, n in ipairs(call('HVALS', B .. 'F')) do counted = counted + tonumber(n) end
  for _, s in ipairs(ps) do waiting, counted = waiting - s.wait, counted - s.i end
  if waiting ~= 0 or counted ~= 0 then
    for _, s in ipairs(ps) do suspects[s.p] = true end
  end
end
if call('ZCOUNT', x, 0, '+inf') ~= live or call('ZCARD', x) ~= blocks then
  for _, member in ipairs(call('ZRANGE', x, 0, -1)) do
    local p, nonce = match(member, '^(%d+):(.+)$')
    if call('HEXISTS', B .. 'L:' .. p, nonce) == 0 then
      call('ZREM', x, member)
      fixed.dangling = fixed.dangling + 1
    end
  end
  for _, s in ipairs(ps) do suspects[s.p] = true end
end
if call('ZCARD', B .. 'D') ~= dead then
  for _, id in ipairs(call('ZRANGE', B .. 'D', 0, -1)) do
    local p, o = match(id, '^(%d+):(%d+)$')
    local v = call('HGET', B .. 'P:' .. p, o)
    if not v or sub(v, 1, 1) ~= DEAD then
      call('ZREM', B .. 'D', id)
      call('ZREM', B .. 'C', id)
      fixed.dangling = fixed.dangling + 1
    end
  end
  for _, s in ipairs(ps) do suspects[s.p] = true end
end
for _, s in ipairs(ps) do
  if suspects[s.p] then
    local f = recount(s)
    for k, v in pairs(f) do fixed[k] = fixed[k] + v end
  end
end
awake = true -- the next event by what is stored
return fmt('%s %d %d %d', finish(), fixed.redelivered, fixed.dangling, fixed.counters)
