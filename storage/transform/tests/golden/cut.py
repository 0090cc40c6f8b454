#!/usr/bin/env python3
"""Cuts the blocks of this folder out of fixture pools: cut.py FIXTURES OUT [full]

FIXTURES holds the unpacked pools mirror-2, mirror-3, encryption, gang, intent-log and intent-log-slog.
zdb says where blocks lie; sums, keys and codes come from it and from block pointers.
With `full` every block is taken that the tests can judge, not only the few kept here (then drop
by hand the object set of the volume, which accounts for nothing, and the log's unwritten end).
"""
import subprocess,re,json,sys
FX=sys.argv[1]
def zdb(dirn,*a):
    return subprocess.run(['zdb','-e','-p',dirn,*a],capture_output=True,text=True,errors='replace').stdout
def blocks(dirn,ds):
    """yield (path,type,off,level,line dict) of L0/L1 blocks"""
    out=zdb(dirn,'-dddddd',ds)
    res=[];path=None;typ=None;obj=None
    lines=out.splitlines()
    for i,l in enumerate(lines):
        m=re.match(r'^\s+(-?\d+)\s+\d+\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+[\d.]+\s+(.*)$',l)
        if m: obj=int(m[1]);typ=m[2];path=None
        m=re.match(r'^\tpath\t(.*)$',l)
        if m: path=m[1]
        m=re.match(r'^\s*([0-9a-f]+)\s+L(\d)\s+(\S+:\S+:\S+) .*?([0-9a-f]+)L/([0-9a-f]+)P (?:F=\d+ )?.*?cksum=(\S+)',l)
        if m:
            res.append(dict(obj=obj,typ=typ,path=path,off=int(m[1],16),level=int(m[2]),dva=m[3],l=int(m[4],16),p=int(m[5],16),ck=m[6],line=l))
    return res
def raw(dirn,dva,p):
    v,o,s=dva.split(':')
    with open(dirn+'/d0.img','rb') as f:
        f.seek(int(o,16)+0x400000); return f.read(p)
import struct,hashlib
D=FX+'/encryption'
def lz4(src,n):
    l=struct.unpack('>I',src[:4])[0]; s=src[4:4+l]; o=bytearray(); i=0
    while i<len(s):
        t=s[i]; i+=1; ll=t>>4
        if ll==15:
            while True:
                b=s[i]; i+=1; ll+=b
                if b!=255: break
        o+=s[i:i+ll]; i+=ll
        if i>=len(s): break
        off=s[i]|s[i+1]<<8; i+=2; ml=(t&15)+4
        if t&15==15:
            while True:
                b=s[i]; i+=1; ml+=b
                if b!=255: break
        for _ in range(ml): o.append(o[-off])
    assert len(o)==n,(len(o),n); return bytes(o)
COMP={0:'inherit',2:'off',3:'lzjb',14:'zle',15:'lz4',16:'zstd'}
def bp(w):
    w=struct.unpack('<16Q',w)
    p=w[6]
    return dict(off=(w[1]&((1<<63)-1))<<9,gang=w[1]>>63,l=((p&0xffff)+1)*512,p=((p>>16&0xffff)+1)*512,comp=p>>32&0x7f,emb=p>>39&1,ck=p>>40&0xff,type=p>>48&0xff,level=p>>56&31,crypt=p>>61&1,le=p>>63,
      salt=struct.pack('<Q',w[4]).hex(),iv=(struct.pack('<Q',w[5])+struct.pack('<I',w[11]>>32)).hex(),mac=struct.pack('<2Q',w[14],w[15]).hex(),sum=w[12:16],hole=w[0]==0 and w[1]==0, birth=w[10], words=w)
def rd(b,dirn=D):
    with open(dirn+'/d0.img','rb') as f:
        f.seek(b['off']+0x400000); return f.read(b['p'])
def rootbp(dirn,ds):
    o=zdb(dirn,'-dddd',ds)
    m=re.search(r'rootbp DVA\[0\]=<0:([0-9a-f]+):',o)
    return int(m[1],16)
def dnodes(blk):
    i=0;r=[]
    while i<len(blk):
        d=blk[i:i+512]; n=(d[12]+1)*512
        r.append((i//512,blk[i:i+n])); i+=n
    return r
def metablocks(dirn,osblk):
    d=osblk[:512]
    bps=[bp(d[64+128*i:192+128*i]) for i in range(d[3])]
    out=[]
    def walk(b,base,span):
        if b['hole']: return
        raw=rd(b,dirn)
        if b['level']==0: out.append((base,b,raw)); return
        pl=lz4(raw,b['l']) if b['comp']==15 else raw
        out.append((None,b,raw))
        sub=span//1024
        for i in range(1024):
            walk(bp(pl[i*128:i*128+128]),base+i*sub,sub)
    for b in bps: walk(b,0,32*1024**b['level'])
    return out
def objset(dirn,ds):
    off=rootbp(dirn,ds)
    with open(dirn+'/d0.img','rb') as f:
        f.seek(off+0x400000); return f.read(4096)
import os,sys
full=len(sys.argv)>3
out=sys.argv[2]; os.makedirs(out,exist_ok=True)
idx=[]; seen={}
def put(data,hint):
    h=hashlib.sha256(data).hexdigest()
    if h in seen: return seen[h]
    n=hint+'.bin'; k=1
    while os.path.exists(out+'/'+n): k+=1; n=f'{hint}-{k}.bin'
    open(out+'/'+n,'wb').write(data); seen[h]=n; return n
# checksums
D3=FX+'/mirror-3'
idx.append('# one block, summed by every method (pool box, datasets checksum-*)')
idx.append('salt f4c5801e8dc8258f1d4a0e9692ea77d8721d10f469da871e7bb506fb75211270')
for n in ['fletcher2','fletcher4','sha256','sha512','skein','edonr','blake3']:
    for b in blocks(D3,'box/checksum-'+n):
        if b['typ'].startswith('ZFS plain') and (full or b['path'] in ('/tiny','/half')):
            idx.append(f"sum {n} {b['ck']} {put(raw(D3,b['dva'],b['p']),'sum'+b['path'].replace('/','-'))}")
# compression
D2=FX+'/mirror-2'
idx.append('# blocks of files, one dataset for each method (pool tank, datasets compression-*)')
m=json.load(open(D2+'/manifest.json'))
for d in sorted(m['datasets'],key=lambda d:d['name']):
    if 'compression-' not in d['name'] : continue
    n=d['name'].split('compression-')[1]
    meth={'on':'lz4'}.get(n,n.split('-')[0] if n.startswith('zstd') else n)
    if n in('off',): continue
    sh={e['path']:(e.get('sha256'),e['size']) for e in d['entries']}
    for b in blocks(D2,d['name']):
        p=b['path']
        if not p or p[1:] not in sh or b['p']>=b['l']: continue
        want={'zle':'/half','zstd-fast-1000':'/half'}.get(n,'/words')
        if full or (p==want and n not in('on','zstd-3','gzip-6')):
            idx.append(f"packed {meth} {b['l']} {sh[p[1:]][0]} {put(raw(D2,b['dva'],b['p']),'packed-'+n)}")
# encryption
idx.append('# keys and blocks of encrypted datasets (pool tank of the fixture encryption)')
o=zdb(D,'-dddd','tank')
keys=[]
for chunk in re.split(r'\n\s+Object ',o):
    if 'DSL_CRYPTO_SUITE' in chunk:
        g=lambda k: re.search(r'\b'+k+r' = (\S+)',chunk)[1]
        keys.append({k:g(k) for k in ['DSL_CRYPTO_SUITE','DSL_CRYPTO_GUID','DSL_CRYPTO_VERSION','DSL_CRYPTO_IV','DSL_CRYPTO_MAC','DSL_CRYPTO_MASTER_KEY_1','DSL_CRYPTO_HMAC_KEY_1','keyformat','pbkdf2salt','pbkdf2iters','DSL_CRYPTO_ROOT_DDOBJ']})
names={'78':'pass','87':'raw','95':'hex'}
sec={'pass':'correct_horse_battery_staple','raw':'8f1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8','hex':'00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff'}
u=lambda s:str(int(s)%2**64)
done=set()
for k in keys:
    n=names[k['DSL_CRYPTO_ROOT_DDOBJ']]
    nm=n if n not in done else ('child' if 'child' not in done else 'vol'); done.add(nm)
    idx.append(' '.join(['key',nm,k['DSL_CRYPTO_SUITE'],u(k['DSL_CRYPTO_GUID']),k['DSL_CRYPTO_VERSION'],k['DSL_CRYPTO_IV'],k['DSL_CRYPTO_MAC'],k['DSL_CRYPTO_MASTER_KEY_1'],k['DSL_CRYPTO_HMAC_KEY_1'],{'1':'raw','2':'hex','3':'passphrase'}[k['keyformat']],sec[n],u(k['pbkdf2salt']),k['pbkdf2iters']]))
m=json.load(open(D+'/manifest.json'))
for ds in m['datasets']:
    if ds['properties'].get('encryption')=='off' : continue
    if ds['type'] not in ('filesystem','volume'): continue
    kn={'tank/hex':'hex','tank/pass':'pass','tank/raw':'raw','tank/pass/child':'child','tank/raw/clone':'raw','tank/pass/vol':'vol'}[ds['name']]
    if kn=='vol': 
        if not any(l.startswith('key vol') for l in idx): continue
    ob=objset(D,ds['name'])
    small=ds['name'] in('tank/hex','tank/pass','tank/raw')
    if full or small: idx.append(f"objset {kn} {put(ob,'objset-'+kn)}")
    files={e['ino']:e for e in ds.get('entries',[]) if e['type']=='file'}
    for base,b,rw in metablocks(D,ob):
        if base is None:
            if full or (ds['name']=='tank/hex' and b['level'] in(1,2)): idx.append(f"pointers {b['mac']} {COMP[b['comp']]} {b['l']} {put(rw,'pointers-'+kn)}")
            continue
        if full or (small and base==(32 if kn=='raw' else 0)): idx.append(f"cipher {kn} dnodes {b['salt']} {b['iv']} {b['mac']} off {b['l']} - - {put(rw,'dnodes-'+kn)}")
        for i,d in dnodes(rw):
            if d[0]==0: continue
            n=base+i; e=files.get(n)
            if d[3]==0: continue
            x=bp(d[64:192])
            if x['hole'] or x['emb']: continue
            if x['level']>0:
                if full: idx.append(f"pointers {x['mac']} {COMP[x['comp']]} {x['l']} {put(rd(x),'pointers-'+kn)}")
                continue
            if d[0]==21:
                if full or small: idx.append(f"leaf {kn} {x['mac']} {put(rd(x),'leaf-'+kn)}")
                continue
            c=COMP.get(x['comp'],'?')
            if e and e.get('sha256'):
                if full or (small and e['path'] in('half','tiny','sizes/noise-4097','sizes/noise-60')):
                    idx.append(f"cipher {kn} whole {x['salt']} {x['iv']} {x['mac']} {c} {x['l']} {e['size']} {e['sha256']} {put(rd(x),'file-'+kn)}")
            elif full: idx.append(f"cipher {kn} whole {x['salt']} {x['iv']} {x['mac']} {c} {x['l']} - - {put(rd(x),'meta-'+kn)}")
def put2(data,n):
    open(out+'/'+n,'wb').write(data); return n
def rdat(img,o,n):
    with open(img,'rb') as f: f.seek(o); return f.read(n)
idx.append('# blocks that carry their sum: an uberblock, a gang header, log blocks')
img=FX+'/mirror-3/d0.img'
best=None
for k in range(16):
    o=128*1024+k*8192; d=rdat(img,o,8192)
    if struct.unpack('<Q',d[:8])[0]==0xbab10c:
        t=struct.unpack('<Q',d[16:24])[0]
        if best is None or t>best[0]: best=(t,o,d)
z='0'
idx.append(f"seal label {best[1]:x}:0:0:0 plain {put2(best[2],'uberblock.bin')}")
idx.append(f"seal gang_header 0:13000:9:0 plain {put2(rdat(FX+'/gang/d0.img',0x13000+0x400000,512),'gang-header.bin')}")
# plain log: with one sector of data, raidz1's parity is that sector
o=zdb(FX+'/intent-log','-ivvvvv','tank')
m=re.search(r'Block seqno \d+, will claim, DVA\[0\]=<0:([0-9a-f]+):[0-9a-f]+>.*?unencrypted.*?size=1000L.*?cksum=(\S+)',o)
sector=int(m[1],16)>>12
idx.append(f"seal zilog2 {m[2]} plain {put2(rdat(FX+f'/intent-log/d{sector%3}.img',(sector//3<<12)+0x400000,4096),'log.bin')}")
S=FX+'/intent-log-slog'
o=zdb(S,'-dddd','tank')
for chunk in re.split(r'\n\s+Object ',o):
    if 'DSL_CRYPTO_SUITE' in chunk:
        g=lambda k: re.search(r'\b'+k+r' = (\S+)',chunk)[1]
        idx.append(' '.join(['key','slog',g('DSL_CRYPTO_SUITE'),str(int(g('DSL_CRYPTO_GUID'))%2**64),g('DSL_CRYPTO_VERSION'),g('DSL_CRYPTO_IV'),g('DSL_CRYPTO_MAC'),g('DSL_CRYPTO_MASTER_KEY_1'),g('DSL_CRYPTO_HMAC_KEY_1'),'raw','000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f','0','0']))
o=zdb(S,'-ivvvvv','tank')
for m in re.finditer(r'Block seqno (\d+), .*?DVA\[0\]=<1:([0-9a-f]+):([0-9a-f]+)> salt=([0-9a-f]+) iv=([0-9a-f]+):([0-9a-f]+) .*?size=([0-9a-f]+)L.*?cksum=(\S+)',o):
    sz=int(m[7],16); q=int(m[1])
    if not full and q not in (3,4): continue
    salt=struct.pack('<Q',int(m[4],16)).hex(); iv=(struct.pack('<Q',int(m[5],16))+struct.pack('<I',int(m[6],16))).hex()
    f=put2(rdat(S+'/d2.img',int(m[2],16)+0x400000,sz),f'log-secret-{q}.bin')
    idx.append(f"seal zilog2 {m[8]} encrypted {f}")
    idx.append(f"cipher slog log {salt} {iv} {'0'*32} - - - - {f}")
open(out+'/index.txt','w').write('\n'.join(idx)+'\n')
