package redisbucket
import ("testing";"context";"strings";"time"
"github.com/redis/go-redis/v9"
"github.com/yuzhi-go/yuzhi/lease";"github.com/yuzhi-go/yuzhi/redisbucket/redistest")
func TestPerfTmp(t *testing.T){
 srv:=redistest.Start(t)
 c:=redis.NewClient(&redis.Options{Addr:srv.Addr}); ctx:=context.Background()
 s,_:=New(c,Config{})
 stat:=func(what string){ for _,l:=range strings.Split(c.Info(ctx,"commandstats").Val(),"\r\n"){ if strings.HasPrefix(l,"cmdstat_evalsha:"){t.Log(what,l)}}; c.ConfigResetStat(ctx)}
 r:=request(1); r.Holder="0123456789abcdef"; r.Config.Limits=[]lease.Limit{lease.PerSecond(100000)}; r.Want=100
 for i:=0;i<5;i++{ g,_:=exchange(s,"k",r); r.Seq++; r.Remaining=g.Granted/3 ;r.Epoch,r.Counter=g.Epoch,g.Counter}
 ctxp,_:=context.WithTimeout(ctx, time.Hour); _=ctxp
 full:=newScript(leaseSource).source
 for _,marker:=range []string{"if redis.replicate_commands","local function int(","-- Every check comes","local ttl, seq, remaining","if max(seq, remaining","-- Step 1.\n","local b\nb, why = read(","-- place is where","-- The record, if it is","-- The view of","-- reply answers","-- Step 4.\n","-- Step 6.\n","-- Step 7: what","-- The whole holding","local answer, life = reply(granted, known","if not sound(b) then return {'damaged', KEYS[1], 'the state would be out of range'} end\nlocal ends","END"}{
  src:=full
  if marker!="END"{ i:=strings.LastIndex(full,marker); if i<0{t.Fatal(marker)}; src=full[:i]+"do return {'ok'} end\n"+full[i:] }
  sc:=scriptOf(src); c.ScriptLoad(ctx,src)
  for round:=0;round<2;round++{
  c.ConfigResetStat(ctx)
  for i:=0;i<20000;i++{ args,_:=s.leaseArgs("k",&r,""); sc.run(ctx,c,[][]any{args}); r.Seq++ }
  if round==1{stat(marker)}
  }
 }
}
