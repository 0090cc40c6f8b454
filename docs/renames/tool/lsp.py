"""rust-analyzer driven renames: lsp.py ROOT TABLE... applies rows FILE LINE KIND OWNER NAME NEW."""
import json, subprocess, sys, os, threading, queue, time, re
RA='$TOOL/bin/rust-analyzer'; DEFS='$TOOL/defs/target/release/defs'
class LSP:
    def __init__(s, root):
        s.root=root; s.id=0; s.resp={}; s.q=queue.Queue(); s.quiet=threading.Event(); s.text={}; s.ver={}
        env=dict(os.environ); env['RA_LOG']='error'
        s.p=subprocess.Popen([RA],stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=open('$TOOL/ra.err','w'),cwd=root,env=env)
        threading.Thread(target=s.reader,daemon=True).start()
        opts={'cargo':{'sysrootSrc':'$TOOL/rust-src/library','buildScripts':{'enable':True},'allTargets':True},'checkOnSave':False,'procMacro':{'enable':True},'cachePriming':{'enable':False},'numThreads':2,'files':{'exclude':['target','fuzz','fixtures']},'lru':{'capacity':512}}
        r=s.req('initialize',{'processId':os.getpid(),'rootUri':'file://'+root,'workspaceFolders':[{'uri':'file://'+root,'name':'w'}],'initializationOptions':opts,
          'capabilities':{'workspace':{'workspaceEdit':{'documentChanges':True,'resourceOperations':['rename','create','delete']},'configuration':False,'didChangeWatchedFiles':{'dynamicRegistration':True}},'textDocument':{'rename':{'prepareSupport':True}},'experimental':{'serverStatusNotification':True},'general':{'positionEncodings':['utf-8']}}},600)
        s.enc=r['capabilities'].get('positionEncoding','utf-16')
        s.note('initialized',{})
    def send(s,m):
        b=json.dumps(m).encode(); s.p.stdin.write(b'Content-Length: %d\r\n\r\n'%len(b)+b); s.p.stdin.flush()
    def reader(s):
        f=s.p.stdout
        while True:
            n=0
            while True:
                l=f.readline()
                if not l: return
                if l==b'\r\n': break
                if l.lower().startswith(b'content-length'): n=int(l.split(b':')[1])
            m=json.loads(f.read(n))
            if 'id' in m and 'method' in m: s.send({'jsonrpc':'2.0','id':m['id'],'result':None})
            elif 'id' in m: s.resp[m['id']]=m; s.q.put(1)
            elif m.get('method')=='experimental/serverStatus':
                if m['params'].get('quiescent'): s.quiet.set()
                else: s.quiet.clear()
                if m['params'].get('message'): print('RA:',m['params']['message'][:300],file=sys.stderr)
    def req(s,method,params,timeout=120):
        s.id+=1; i=s.id; s.send({'jsonrpc':'2.0','id':i,'method':method,'params':params}); end=time.time()+timeout
        while i not in s.resp:
            try: s.q.get(timeout=1)
            except queue.Empty: pass
            if time.time()>end: raise TimeoutError(method)
        m=s.resp.pop(i)
        if 'error' in m: raise RuntimeError(m['error'].get('message'))
        return m['result']
    def note(s,method,params): s.send({'jsonrpc':'2.0','method':method,'params':params})
    def open(s,f):
        t=open(f,encoding='utf8').read(); s.text[f]=t; s.ver[f]=1
        s.note('textDocument/didOpen',{'textDocument':{'uri':'file://'+f,'languageId':'rust','version':1,'text':t}})
    def change(s,f,t):
        s.text[f]=t; s.ver[f]+=1; open(f,'w',encoding='utf8').write(t)
        s.note('textDocument/didChange',{'textDocument':{'uri':'file://'+f,'version':s.ver[f]},'contentChanges':[{'text':t}]})
    def apply(s,edit):
        n=0; files=set(); ops=[]
        for d in edit.get('documentChanges') or [{'textDocument':{'uri':u},'edits':e} for u,e in (edit.get('changes') or {}).items()]:
            if 'kind' in d:
                assert d['kind']=='rename',d; ops.append((d['oldUri'][7:],d['newUri'][7:])); continue
            f=d['textDocument']['uri'][7:]
            if f not in s.text:
                if not f.startswith(s.root): raise RuntimeError('outside '+f)
                s.open(f)
            b=s.text[f].encode(); lines=[0]
            for i,c in enumerate(b):
                if c==10: lines.append(i+1)
            es=[(lines[e['range']['start']['line']]+e['range']['start']['character'],lines[e['range']['end']['line']]+e['range']['end']['character'],e['newText']) for e in d['edits']]
            for a,z,t in sorted(es,reverse=True): b=b[:a]+t.encode()+b[z:]; n+=1
            s.change(f,b.decode()); files.add(f)
        for a,z in ops:
            if not os.path.exists(a): continue
            os.makedirs(os.path.dirname(z),exist_ok=True); subprocess.run(['git','mv',a,z],cwd=s.root,check=True)
            ev=[]
            for f in [f for f in list(s.text) if f==a or f.startswith(a+'/')]:
                g=z+f[len(a):]; s.note('textDocument/didClose',{'textDocument':{'uri':'file://'+f}}); t=s.text.pop(f)
                ev+= [{'uri':'file://'+f,'type':3},{'uri':'file://'+g,'type':1}]; moved.append((f,g))
            s.note('workspace/didChangeWatchedFiles',{'changes':ev})
            for e in ev:
                if e['type']==1: s.open(e['uri'][7:])
            time.sleep(1.5); s.quiet.wait(60)
        return n,len(files)
moved=[]
def find(root,file,line,kind,owner,name):
    out=subprocess.run([DEFS,file],cwd=root,capture_output=True,text=True).stdout.splitlines()
    rows=[r.split('\t') for r in out]
    same=[r for r in rows if r[5]==name and r[3]==kind and (r[4]==owner)] or [r for r in rows if r[5]==name and r[3]==kind]
    if not same: return None
    r=min(same,key=lambda r:abs(int(r[1])-int(line)))
    return int(r[1])-1,int(r[2])
def main():
    root=sys.argv[1]; l=LSP(root); assert l.enc=='utf-8',l.enc
    t0=time.time(); time.sleep(5); l.quiet.wait(900); print('ready after',int(time.time()-t0),file=sys.stderr)
    files=subprocess.run(['git','ls-files','*.rs'],cwd=root,capture_output=True,text=True).stdout.split()
    for f in files:
        if not f.startswith('fuzz/'): l.open(root+'/'+f)
    if os.environ.get('PROBE'):
        for spec in sys.argv[2:]:
            f,ln,c,new=spec.split(':'); e=l.req('textDocument/rename',{'textDocument':{'uri':'file://'+root+'/'+f},'position':{'line':int(ln)-1,'character':int(c)},'newName':new},600)
            print(spec,{d['textDocument']['uri'][7:] if 'textDocument' in d else str(d):len(d.get('edits',[])) for d in e['documentChanges']})
        return
    for tab in sys.argv[2:]:
        owners={}
        fail=open(tab+'.failed','w'); done=0; start=time.time()
        rows=open(tab,encoding='utf8').read().split('\n'); rows=[r for r in rows if '\tmod\t' not in r]+[r for r in rows if '\tmod\t' in r]
        for row in rows:
            row=row.rstrip('\n')
            if not row or row.startswith('#'): continue
            p=row.split('\t')
            if len(p)<6: fail.write(row+'\tBAD\n'); continue
            file,line,kind,owner,name,new=[x.strip() for x in p[:6]]
            if name==new: fail.write(row+'\tSKIP\n'); continue
            for a,z in moved:
                if root+'/'+file==a: file=z[len(root)+1:]
            own=owners.get(owner,owner)
            if '::' in owner and owner not in owners:
                a,b=owner.split('::',1); own=owners.get(a,a)+'::'+owners.get((a,b),b)
            pos=find(root,file,line,kind,own,name)
            if not pos: fail.write(row+'\tNOTFOUND\n'); continue
            try:
                e=l.req('textDocument/rename',{'textDocument':{'uri':'file://'+root+'/'+file},'position':{'line':pos[0],'character':pos[1]},'newName':new},120)
                n=l.apply(e) if e else (0,0); done+=1
                if kind in('struct','enum','trait','type'): owners[name]=new
                if kind=='variant': owners[(owner,name)]=new
                if done%50==0: print(tab,done,int(time.time()-start),'s',file=sys.stderr,flush=True)
            except Exception as x: fail.write(row+'\t'+str(x).replace('\n',' ')[:200]+'\n'); fail.flush()
        print(tab,'done',done,int(time.time()-start),'s',file=sys.stderr,flush=True)
main()
