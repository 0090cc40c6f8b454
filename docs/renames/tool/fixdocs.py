import re,sys,glob,os,subprocess
root=sys.argv[1]; crates=sys.argv[2:]
types={}; members={}; mods={}; fns={}
for c in crates:
    for r in open(f'$TOOL/names/{c}.tsv',encoding='utf8'):
        p=[x.strip() for x in r.rstrip('\n').split('\t')]
        if len(p)<6: continue
        f,_,k,o,a,b=p[:6]
        if '/tests/' in f: continue
        if k in('struct','enum','trait','type'): types.setdefault(a,{}).setdefault(c,b)
        elif k in('fn','variant','field','const') and o!='-': members.setdefault((o.split('::')[0],a),{}).setdefault(c,b)
        elif k=='mod': mods.setdefault(a,{}).setdefault(c,b)
        if k in('fn','const') and o=='-': fns.setdefault(a,{}).setdefault(c,b)
types['Held']['engine']='Pool'
def pick(d,c,strict=False):
    if not d: return None
    if c in d: return d[c]
    if strict: return None
    return None
def fix(path,c,link):
    segs=path.split('::'); out=[]; owner=None; tail=''
    if segs[-1].endswith('()'): segs[-1]=segs[-1][:-2]; tail='()'
    crate=c
    for i,s in enumerate(segs):
        n=s
        if i==0 and s in allcrates: crate=s
        elif re.match(r'[A-Z][A-Za-z0-9]*$',s) and not s.isupper():
            if owner is not None: n=pick(members.get((owner,s)),crate,False) or s
            else: n=pick(types.get(s),crate,not link) or s; owner=s
        elif owner is not None: n=pick(members.get((owner,s)),crate) or s
        elif i<len(segs)-1: n=pick(mods.get(s),crate,True) or (mods.get(s,{}).get(crate)) or s
        elif link or len(segs)>1: n=pick(fns.get(s),crate,True) or s
        out.append(n)
    return '::'.join(out)+tail
allcrates=[os.path.basename(os.path.dirname(p)) for p in glob.glob(root+'/*/*/Cargo.toml')]
n=0
for f in subprocess.run(['git','ls-files','*.rs'],cwd=root,capture_output=True,text=True).stdout.split():
    c=f.split('/')[1]; s=open(root+'/'+f,encoding='utf8').read(); o=[]
    for line in s.split('\n'):
        m=re.match(r'(\s*//[/!]?)(.*)$',line)
        if m or '//' in line:
            pre,com=(m.group(1),m.group(2)) if m else line.split('//',1) if '"' not in line else (line,None)
            if com is not None and '`' in com:
                com2=re.sub(r'(\[?)`([A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*(?:\(\))?)`',lambda x:x.group(1)+'`'+fix(x.group(2),c,x.group(1)=='[')+'`',com)
                com2=re.sub(r'\]\(([a-zA-Z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*)\)',lambda x:']('+fix(x.group(1),c,True)+')',com2)
                if com2!=com: n+=1
                line=pre+('' if m else '//')+com2
        o.append(line)
    t='\n'.join(o)
    if t!=s: open(root+'/'+f,'w',encoding='utf8').write(t)
print('lines',n)
