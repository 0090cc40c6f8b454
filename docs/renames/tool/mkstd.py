import re,os,html,glob
base=glob.glob(os.path.expanduser('~/.rustup/toolchains/1.95.0*/share/doc/rust/html/src'))[0]
out='$TOOL/rust-src/library'
n=0
for d,_,fs in os.walk(base):
    for f in fs:
        if not f.endswith('.rs.html'): continue
        p=os.path.join(d,f); s=open(p,encoding='utf8').read()
        m=re.search(r'<pre class="rust">(.*?)</pre>',s,re.S)
        if not m: print('no',p); continue
        code=re.search(r'<code>(.*)</code>',m.group(1),re.S)
        t=code.group(1) if code else m.group(1)
        t=re.sub(r'<a href=#\d+ id=\d+ data-nosnippet>\d+</a>','',t)
        t=re.sub(r'<[^>]*>','',t); t=html.unescape(t)
        rel=os.path.relpath(p,base)[:-5]
        crate,rest=rel.split('/',1)
        o=f'{out}/{crate}/src/{rest}'
        os.makedirs(os.path.dirname(o),exist_ok=True); open(o,'w').write(t.lstrip('\n')); n+=1
print(n)
