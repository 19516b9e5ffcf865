-- Any operation on leases. ARGV: see settle_fast.lua. Op 6 schedules: the count of a range is when it is due.
if m.ready ~= '1' then return 'NL' end
local op, arg, reason = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local absent = {}
for i = 1, np do
  if not shard(ARGV[9 + i]) then absent[#absent + 1] = ARGV[9 + i] end
end
if absent[1] then return fmt('AB %d %s', #absent, table.concat(absent, ' ')) end
wakeUp()

local initial, most, multiplier, jitter, seed = match(ARGV[8], '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
seed = tonumber(seed)
local function pause(attempt)
  if arg >= 0 then return arg end
  local d = math.min(tonumber(most), initial * multiplier ^ (attempt - 1))
  if jitter == '1' then
    seed = (seed * 16807) % 2147483647
    d = d * seed / 2147483647
  end
  return math.floor(d)
end

local function acked(s, o, state, attempt)
  local att = leave(s, o, state)
  if attempt > 1 or state == 'M' then removePointer(s, o) end
  if att then settleOne(s, o) end
  if keyed then unlock(s, o) end
end

-- What becomes of one live record, and the state that its lease ends in.
local ops = {
  ['1'] = function(s, o, state, attempt)
    acked(s, o, state, attempt)
    return 'A'
  end,
  ['2'] = function(s, o, state, attempt)
    fail(s, o, state, attempt, now + pause(attempt), reason)
    return 'N'
  end,
  ['4'] = function(s, o, state)
    leave(s, o, state)
    again(s, o, now, pointer(s, o))
    return 'N'
  end,
  ['5'] = function(s, o, state, attempt)
    s.skipped = s.skipped + 1
    durable(s)
    acked(s, o, state, attempt)
    return 'A'
  end,
  ['6'] = function(s, o, state, attempt, due)
    local att = leave(s, o, state)
    local x = pointer(s, o) or newPointer(SCHEDULED)
    x.kind, x.due, x.det = SCHEDULED, due, true
    if keyed then x.kh = keyOf(s, o) or '0' end
    if att then settleOne(s, o) end
    putPointer(s, o, x)
    again(s, o, due, x)
    return 'N'
  end,
}

-- An extended range gets an expiry of its own: [before] [range] [after].
local function extend(b, from, count, ok)
  local to, k = from + count, 1
  while k <= #b do
    local x = b[k]
    local a, e = math.max(from, x.s), math.min(to, x.s + x.n)
    if a < e and x.e > now then
      local seg = sub(x.st, a - x.s + 1, e - x.s)
      if find(seg, '[LM]') then
        for i = 1, #seg do
          local state = sub(seg, i, i)
          if state == 'L' or state == 'M' then ok[a - from + i] = '1' end
        end
        local pieces = {}
        if a > x.s then pieces[#pieces + 1] = {s = x.s, n = a - x.s, e = x.e, st = sub(x.st, 1, a - x.s)} end
        pieces[#pieces + 1] = {s = a, n = e - a, e = now + arg, st = seg}
        if e < x.s + x.n then pieces[#pieces + 1] = {s = e, n = x.s + x.n - e, e = x.e, st = sub(x.st, e - x.s + 1)} end
        table.remove(b, k)
        for i, piece in ipairs(pieces) do table.insert(b, k + i - 1, piece) end
        k = k + #pieces - 1
        b.changed = true
      end
    end
    k = k + 1
  end
end

-- The end of what was handed out first goes back to the cursor as if nothing had been: runs stay whole.
local function rewind(s, b, from, count, ok)
  if op ~= '4' or keyed or b.attempt ~= 1 or from + count ~= s.c or s.pre ~= 0 or from < s.f then return false end
  local covered = 0
  for _, x in ipairs(b) do
    local a, e = math.max(from, x.s), math.min(from + count, x.s + x.n)
    if a < e then
      if x.e <= now or find(sub(x.st, a - x.s + 1, e - x.s), '[^L]') then return false end
      covered = covered + e - a
    end
  end
  if covered ~= count then return false end
  for _, x in ipairs(b) do
    local a, e = math.max(from, x.s), math.min(from + count, x.s + x.n)
    if a < e then x.st = sub(x.st, 1, a - x.s) .. rep('N', e - a) .. sub(x.st, e - x.s + 1) end
  end
  b.changed, s.changed = true, true
  s.c, s.i, s.ia = from, s.i - count, s.ia - count
  freed = freed + count
  for k = 1, count do ok[k] = '1' end
  return true
end

local blocks, order, results = {}, {}, {}
local at = 11 + np
for r = 1, nr do
  local s = shard(ARGV[9 + tonumber(ARGV[at])])
  local from, count, nonce, due = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3], nil
  at = at + 4
  if op == '6' then due, count = count, 1 end
  local ok = {}
  for k = 1, count do ok[k] = '0' end
  local b = blocks[s.p .. ':' .. nonce]
  if b == nil then
    local v = call('HGET', B .. 'L:' .. s.p, nonce)
    b = v and parseBlock(v) or false
    if b then
      b.s, b.nonce = s, nonce
      order[#order + 1] = b
    end
    blocks[s.p .. ':' .. nonce] = b
  end
  if b and op == '3' then
    extend(b, from, count, ok)
  elseif b and not rewind(s, b, from, count, ok) then
    for _, x in ipairs(b) do
      local a, e = math.max(from, x.s), math.min(from + count, x.s + x.n)
      if a < e then
        local states = {}
        for o = a, e - 1 do
          local state = sub(x.st, o - x.s + 1, o - x.s + 1)
          if (state == 'L' or state == 'M') and x.e > now then
            state = ops[op](s, pad(o), state, b.attempt, due)
            ok[o - from + 1] = '1'
            b.changed = true
          elseif state == 'A' and (op == '1' or op == '5') then
            ok[o - from + 1] = '1' -- a repeated ack
          end
          states[#states + 1] = state
        end
        x.st = sub(x.st, 1, a - x.s) .. table.concat(states) .. sub(x.st, e - x.s + 1)
      end
    end
  end
  if not find(table.concat(ok), '0', 1, true) then
    results[r] = '1'
  else
    if NONONCE and op == '1' then ackAnyway(s, from, ok, blocks, order) end
    results[r] = table.concat(ok)
  end
end
for _, b in ipairs(order) do
  if b.changed then saveBlock(b.s, b.nonce, b) end
end
return finish() .. ' ' .. table.concat(results, ' ')
