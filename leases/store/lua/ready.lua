-- Marks the subscription as loaded.
m.ready, m.changed, m.touch = '1', true, 0
awake = true
finish()
return 'OK'
