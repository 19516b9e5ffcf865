-- Where shards stand. ARGV from 5: partitions.
if m.ready ~= '1' then return 'NL' end
local pos, absent = {}, {}
for i = 5, #ARGV do
  local s = shard(ARGV[i])
  if s then
    pos[#pos + 1] = fmt('%s %d %d %d', s.p, s.f, s.c, math.max(0, math.min(MIF - s.i, MAA - (s.c - s.f))))
  else
    absent[#absent + 1] = ARGV[i]
  end
end
return fmt('OK %d %s %d %s', #pos, table.concat(pos, ' '), #absent, table.concat(absent, ' '))
