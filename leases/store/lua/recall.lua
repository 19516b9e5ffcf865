-- Those leases of a request that are still live. ARGV from 5: partition, begin, count, nonce; four each.
if m.ready ~= '1' then return 'NL' end
local out = {}
for i = 5, #ARGV, 4 do
  local from, to = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 1]) + tonumber(ARGV[i + 2])
  local v = call('HGET', B .. 'L:' .. ARGV[i], ARGV[i + 3])
  local b = v and parseBlock(v) or {}
  for _, x in ipairs(b) do
    for o = math.max(from, x.s), math.min(to, x.s + x.n) - 1 do
      if x.e > now and find(sub(x.st, o - x.s + 1, o - x.s + 1), '[LM]') then
        out[#out + 1] = fmt('%s %d %s %d %d', ARGV[i], o, ARGV[i + 3], b.attempt, x.e)
      end
    end
  end
end
return fmt('OK %d %s', #out, table.concat(out, ' '))
