-- The durable state of shards with their changed pointers. ARGV from 5: partitions, none = all dirty ones.
if m.ready ~= '1' then return 'NL' end
local ps = {}
for i = 5, #ARGV do ps[#ps + 1] = ARGV[i] end
if not ps[1] then ps = call('ZRANGE', B .. 'S', 0, -1) end
local out, n = {}, 0
for _, p in ipairs(ps) do
  local s = shard(p)
  if s then
    n = n + 1
    local raw = call('ZRANGE', B .. 'A:' .. p, 0, -1, 'WITHSCORES')
    out[#out + 1] = fmt('%s %d %d %d %d %d', p, s.inc, s.seq, s.f, s.skipped, #raw / 2)
    for i = 1, #raw, 2 do out[#out + 1] = fmt('%d %s', tonumber(raw[i + 1]), raw[i]) end
    local ids = call('ZRANGE', B .. 'J:' .. p, 0, -1)
    out[#out + 1] = #ids
    for from = 1, #ids, 500 do
      local some = {unpack(ids, from, math.min(from + 499, #ids))}
      local vals = call('HMGET', B .. 'P:' .. p, unpack(some))
      for i, o in ipairs(some) do out[#out + 1] = o .. ' ' .. (vals[i] or '-') end
    end
  end
end
return fmt('OK %d %s', n, table.concat(out, ' '))
