-- Dead letters. ARGV from 5: op, then
--   list, copies: score, id, limit                        a page of D or of C after (score, id)
--   redrive: all, before, score, id, limit | targets      with all: a page; else n, then partition and offset each
--   discard: all, before, limit | targets
--   count: all, before | targets
--   buried, expired, copied: targets
if m.ready ~= '1' then return 'NL' end
local op = ARGV[5]

-- The members of a zset after (score, member), in order: those of one score are ordered by member.
local function page(key, score, id, limit, most)
  if limit == 0 then return {} end
  local lo = 0
  if score ~= '' then
    lo = call('ZCOUNT', key, '-inf', '(' .. score)
    local hi = call('ZCOUNT', key, '-inf', score)
    while lo < hi do
      local mid = math.floor((lo + hi) / 2)
      if call('ZRANGE', key, mid, mid)[1] <= id then lo = mid + 1 else hi = mid end
    end
  end
  local raw = call('ZRANGE', key, lo, lo + limit - 1, 'WITHSCORES')
  local out = {}
  for i = 1, #raw, 2 do
    if most and tonumber(raw[i + 1]) > most then break end
    out[#out + 1] = {raw[i], fmt('%d', tonumber(raw[i + 1]))}
  end
  return out
end

if op == 'list' or op == 'copies' then
  local out, last = {}, '- -'
  local found = page(B .. (op == 'list' and 'D' or 'C'), ARGV[6], ARGV[7], tonumber(ARGV[8]), nil)
  for _, x in ipairs(found) do
    local p, o = match(x[1], '^(%d+):(%d+)$')
    local v = call('HGET', B .. 'P:' .. p, o)
    if v then out[#out + 1] = p .. ' ' .. o .. ' ' .. v end
    last = x[2] .. ' ' .. x[1]
  end
  if #found < tonumber(ARGV[8]) then last = '- -' end
  return fmt('OK %d %s %s', #out, table.concat(out, ' '), last)
end

local function targets(at)
  local out = {}
  for i = 1, tonumber(ARGV[at]) do out[i] = {ARGV[at + 2 * i - 1], ARGV[at + 2 * i]} end
  return out
end

-- redrive, discard and count take what died at or before a time; with targets 0 = whenever it died.
local all, before = ARGV[6] == '1', tonumber(ARGV[7])
local bounded = op == 'redrive' or op == 'discard' or op == 'count'

-- The shard and pointer of a dead letter; nothing for what is none, or died too late.
local function dead(p, o)
  local s = shard(p)
  local x = s and pointer(s, o)
  if not x or x.kind ~= DEAD or bounded and (all or before > 0) and x.last > before then return end
  return s, x
end

if op == 'count' then
  if all then return fmt('OK %d', call('ZCOUNT', B .. 'D', '-inf', before)) end
  local n = 0
  for _, t in ipairs(targets(8)) do
    if dead(t[1], t[2]) then n = n + 1 end
  end
  return fmt('OK %d', n)
end

local function leaveDead(s, o)
  s.dead, s.changed = s.dead - 1, true
  call('ZREM', B .. 'D', s.p .. ':' .. o)
  call('ZREM', B .. 'C', s.p .. ':' .. o)
end

-- An unsettled one becomes settled: its pointer alone remembers it.
local function detach(s, o, x)
  if not x.copy then return end
  x.copy = false
  if attached(s, o, x.det) then
    s.copyA = s.copyA - 1
    settleOne(s, o)
  end
  x.det = true
end

local function redrive(p, o)
  local s, x = dead(p, o)
  if not s or x.expired then return 0 end
  leaveDead(s, o)
  detach(s, o, x)
  x.kind, x.att, x.due, x.det = RETRY, 0, now, true
  putPointer(s, o, x)
  enqueue(s, o, x.kh, now, x)
  return 1
end

local function discard(p, o)
  local s, x = dead(p, o)
  if not s then return 0 end
  leaveDead(s, o)
  detach(s, o, x)
  removePointer(s, o)
  return 1
end

wakeUp()
local done = 0
if op == 'redrive' then
  if all then
    local limit, last = tonumber(ARGV[10]), '- -'
    local found = page(B .. 'D', ARGV[8], ARGV[9], limit, before)
    for _, x in ipairs(found) do
      done = done + redrive(match(x[1], '^(%d+):(%d+)$'))
      last = x[2] .. ' ' .. x[1]
    end
    if #found < limit then last = '- -' end
    return fmt('%s %d %s', finish(), done, last)
  end
  for _, t in ipairs(targets(8)) do done = done + redrive(t[1], t[2]) end
  return fmt('%s %d - -', finish(), done)
elseif op == 'discard' then
  if all then
    for _, x in ipairs(page(B .. 'D', '', '', tonumber(ARGV[8]), before)) do
      local p, o = match(x[1], '^(%d+):(%d+)$')
      if discard(p, o) == 1 then
        done = done + 1
      else
        call('ZREM', B .. 'D', x[1])
      end
    end
  else
    for _, t in ipairs(targets(8)) do done = done + discard(t[1], t[2]) end
  end
  return fmt('%s %d', finish(), done)
end
for _, t in ipairs(targets(6)) do
  local s, x = dead(t[1], t[2])
  if s then
    if op == 'buried' then
      call('ZREM', B .. 'C', s.p .. ':' .. t[2])
      s.changed = true
      detach(s, t[2], x)
      x.copied = true
    elseif op == 'expired' then
      x.expired = true
    else
      x.copied = true
    end
    putPointer(s, t[2], x)
  end
end
return finish()
