-- Takes a subscription out of Redis: ARGV[5] is evict (only when the journal has all of it and nothing is leased or due) or drop.
if ARGV[5] == 'evict' then
  if m.ready ~= '1' then return 'NL' end
  for _, key in ipairs({'S', 'OP', 'C', 'FQ'}) do
    if call('EXISTS', B .. key) == 1 then return 'OK 0' end
  end
  if call('ZCOUNT', B .. 'X', 0, '+inf') > 0 then return 'OK 0' end
end
for _, field in ipairs(call('HKEYS', H)) do
  local p = match(field, '^~?(%d+)$')
  if p then purge(p) end
end
for _, key in ipairs({'H', 'X', 'OP', 'D', 'C', 'S', 'F', 'FQ'}) do call('DEL', B .. key) end
for _, key in ipairs({'due', 'dirty', 'subs'}) do call('ZREM', G .. key, ID) end
return 'OK 1'
