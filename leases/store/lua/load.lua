-- Puts one shard in place, in one call or several. ARGV from 5: partition, incarnation, step (keep, only, first, more, last), frontier, skipped,
-- ns, ns times from and to, np, np times offset and pointer (without its kind's place in the queue, which is decided here); last, the incarnation
-- that may be purged: -1 none, 0 any.
-- Between first and last the shard is staged in the field "~<p>" and absent for everybody else.
local p, inc, step = ARGV[5], tonumber(ARGV[6]), ARGV[7]
local v, staged = call('HGET', H, p), call('HGET', H, '~' .. p)
local here = v and parseShard(p, v)
local there = staged and parseShard(p, staged)
if step == 'keep' then
  if not here or there or here.inc >= inc then return 'ST' end
  local s = shard(p)
  s.inc = inc
  durable(s) -- what was journalled after the opening under the old incarnation does not count: journal it again
  finish()
  return 'OK'
end
local s
if step == 'first' or step == 'only' then
  if here and here.inc >= inc or there and there.inc >= inc then return 'ST' end
  local over = tonumber(ARGV[#ARGV])
  if over ~= 0 and (here and here.inc or -1) ~= over then return 'ST' end
  purge(p)
  call('HDEL', H, p, '~' .. p)
  s = {p = p, f = tonumber(ARGV[8]), c = tonumber(ARGV[8]), i = 0, ia = 0, pre = 0, dl = 0, ahead = 0, seq = 0, dirty = '0', blocks = 0, inc = inc,
    owed = 0, owedA = 0, wait = 0, waitA = 0, dead = 0, copyA = 0, skipped = tonumber(ARGV[9])}
else
  if not there or there.inc ~= inc then return 'ST' end
  s = there
end
S[p] = s
local ns = tonumber(ARGV[10])
for i = 1, ns do
  local a, b = ARGV[9 + 2 * i], ARGV[10 + 2 * i]
  local n = tonumber(b) - tonumber(a)
  call('ZADD', B .. 'A:' .. p, a, b)
  s.ahead, s.pre = s.ahead + n, s.pre + n
end
local at = 12 + 2 * ns
for i = 1, tonumber(ARGV[11 + 2 * ns]) do
  local o, packed = ARGV[at], ARGV[at + 1]
  at = at + 2
  local x = parsePointer(packed)
  call('HSET', B .. 'P:' .. p, o, packed)
  if x.kind == DEAD then
    s.dead = s.dead + 1
    call('ZADD', B .. 'D', x.last, p .. ':' .. o)
    if x.copy then
      call('ZADD', B .. 'C', x.last, p .. ':' .. o)
      copies = 1
      if not x.det then s.copyA, s.pre = s.copyA + 1, s.pre + 1 end
    end
  else
    if not x.det then s.pre = s.pre + 1 end
    enqueue(s, o, x.kh, math.max(now, x.due), x)
  end
end
if step == 'first' or step == 'more' then
  call('HSET', H, '~' .. p, packShard(s))
  if m.changed then saveMeta() end
  return 'OK'
end
call('HDEL', H, '~' .. p)
s.changed, s.oweChanged = true, true
touched[1] = s
finish()
return 'OK'
