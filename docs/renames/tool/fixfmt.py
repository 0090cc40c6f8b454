"""fixfmt.py ROOT: runs cargo check until no error of a renamed field in a format string is left; fixes those by the tables."""
import json,subprocess,sys,glob,os
import re
root=sys.argv[1]; m={}; newname={}
for t in glob.glob('$TOOL/names/*.tsv'):
    for r in open(t,encoding='utf8'):
        p=r.rstrip('\n').split('\t')
        if len(p)>=6 and p[2]in('field','fn','variant'): m.setdefault(p[4],[]).append((p[0],p[5],p[3]))
        if len(p)>=6 and p[2]in('struct','enum','trait','type'): newname[(p[0].split('/')[1],p[4])]=p[5]
for rnd in range(12):
    out=subprocess.run(['cargo','check','--workspace','--all-targets','--message-format=json'],cwd=root,capture_output=True,text=True).stdout
    fixes={}; other=[]
    for l in out.splitlines():
        j=json.loads(l)
        if j.get('reason')!='compiler-message' or j['message']['level']!='error': continue
        msg=j['message']; code=(msg.get('code')or{}).get('code')
        for sp in msg['spans']:
            if not sp['is_primary']: continue
            f=sp['file_name']; t=sp['text'][0]['text'][sp['text'][0]['highlight_start']-1:sp['text'][0]['highlight_end']-1] if sp['text'] else ''
            ty=re.search(r'(?:on type|for (?:struct|enum|reference|type parameter|mutable reference)) `([^`]*)`',msg['message'])
            ty=re.sub(r'<.*','',ty.group(1)).lstrip('&').replace('mut ','').split('::')[-1] if ty else None
            if ty and t in m:
                c={n for ff,n,o in m[t] if newname.get((ff.split('/')[1],o.split('::')[0]),o.split('::')[0])==ty or o==ty}
                if len(c)==1: fixes.setdefault(f,set()).add((sp['byte_start'],sp['byte_end'],c.pop())); break
                other.append(f"{code} {f}:{sp['line_start']}: {msg['message'][:160]} [{t[:40]}]"); break
            if code in('E0425','E0609') and t in m and '"' in sp['text'][0]['text'] or code in ('E0425','E0609') and t in m:
                c=[n for ff,n,o in m[t] if ff==f] or [n for ff,n,o in m[t] if ff.split('/')[1]==f.split('/')[1]]
                if c: fixes.setdefault(f,set()).add((sp['byte_start'],sp['byte_end'],c[0])); break
            other.append(f"{code} {f}:{sp['line_start']}: {msg['message'][:160]} [{t[:40]}]")
    for f,s in fixes.items():
        b=open(root+'/'+f,'rb').read()
        for a,z,n in sorted(s,reverse=True): b=b[:a]+n.encode()+b[z:]
        open(root+'/'+f,'wb').write(b)
    print('round',rnd,'fixed',sum(map(len,fixes.values())),'other',len(set(other)),flush=True)
    if not fixes:
        print('\n'.join(sorted(set(other))[:80])); break
