-- What would be handed out next. ARGV from 5: max, n, then n times partition and head.
if m.ready ~= '1' then return 'NL' end
local max, found = tonumber(ARGV[5]), {}
local function add(p, o, due)
  local v = call('HGET', B .. 'P:' .. p, o)
  found[#found + 1] = {p, tonumber(o), v and parsePointer(v).att + 1 or 1, due}
end
local later = {}
for _, p in ipairs(call('ZRANGE', B .. 'OP', 0, 999)) do
  local raw = call('ZRANGE', B .. 'O:' .. p, 0, max - 1, 'WITHSCORES')
  for i = 1, #raw, 2 do later[#later + 1] = {p, raw[i], tonumber(raw[i + 1])} end
end
table.sort(later, function(a, b) return a[3] < b[3] or a[3] == b[3] and (a[1] < b[1] or a[1] == b[1] and a[2] < b[2]) end)
local next = 1
while later[next] and later[next][3] <= now and #found < max do
  add(later[next][1], later[next][2], 0)
  next = next + 1
end
if fair then
  for _, pair in ipairs(call('ZRANGE', B .. 'FQ', 0, max - 1)) do
    for _, o in ipairs(call('ZRANGE', B .. 'FW:' .. pair, 0, max - 1)) do
      if #found < max then add(match(pair, '^%d+'), o, 0) end
    end
  end
end
if not keyed then
  for i = 1, tonumber(ARGV[6]) do
    local s, head = shard(ARGV[5 + 2 * i]), tonumber(ARGV[6 + 2 * i])
    local o = s and s.c or head
    while o < head and #found < max do
      local known = false
      if s.pre > 0 then
        local e = call('ZREVRANGEBYSCORE', B .. 'A:' .. s.p, o, '-inf', 'LIMIT', 0, 1)[1]
        known = e and tonumber(e) > o or call('HEXISTS', B .. 'P:' .. s.p, pad(o)) == 1
      end
      if not known then found[#found + 1] = {s.p, o, 1, 0} end
      o = o + 1
    end
  end
end
while later[next] and #found < max do
  add(later[next][1], later[next][2], later[next][3])
  next = next + 1
end
local out = {}
for i, x in ipairs(found) do out[i] = fmt('%s %d %d %d', x[1], x[2], x[3], x[4]) end
return fmt('OK %d %s', #out, table.concat(out, ' '))
