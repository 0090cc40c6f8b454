// prints every definition: file, line, column (0-based utf8 char), kind, owner, name
use syn::visit::{self, Visit};
struct V { file: String, owner: Vec<String>, trait_impl: bool, test: bool }
impl V {
    fn out(&self, kind: &str, id: &syn::Ident) {
        let p = id.span().start();
        let owner = self.owner.last().cloned().unwrap_or("-".into());
        println!("{}\t{}\t{}\t{}\t{}\t{}", self.file, p.line, p.column, kind, owner, id);
    }
}
fn ty(t: &syn::Type) -> String {
    if let syn::Type::Path(p) = t { p.path.segments.last().map(|s| s.ident.to_string()).unwrap_or("?".into()) }
    else if let syn::Type::Reference(r) = t { ty(&r.elem) } else { "?".into() }
}
impl<'a> Visit<'a> for V {
    fn visit_item_struct(&mut self, i: &'a syn::ItemStruct) {
        self.out("struct", &i.ident); self.owner.push(i.ident.to_string());
        for f in &i.fields { if let Some(id) = &f.ident { self.out("field", id); } }
        self.owner.pop();
    }
    fn visit_item_enum(&mut self, i: &'a syn::ItemEnum) {
        self.out("enum", &i.ident);
        for v in &i.variants { self.owner.push(i.ident.to_string()); self.out("variant", &v.ident); self.owner.push(format!("{}::{}", i.ident, v.ident));
            for f in &v.fields { if let Some(id) = &f.ident { self.out("field", id); } } self.owner.pop(); self.owner.pop(); }
    }
    fn visit_item_trait(&mut self, i: &'a syn::ItemTrait) { self.out("trait", &i.ident); self.owner.push(i.ident.to_string()); visit::visit_item_trait(self, i); self.owner.pop(); }
    fn visit_trait_item_fn(&mut self, i: &'a syn::TraitItemFn) { self.out("fn", &i.sig.ident); visit::visit_trait_item_fn(self, i); }
    fn visit_item_impl(&mut self, i: &'a syn::ItemImpl) { let old = self.trait_impl; self.trait_impl = i.trait_.is_some(); self.owner.push(ty(&i.self_ty)); visit::visit_item_impl(self, i); self.owner.pop(); self.trait_impl = old; }
    fn visit_impl_item_fn(&mut self, i: &'a syn::ImplItemFn) { if !self.trait_impl { self.out("fn", &i.sig.ident); } visit::visit_impl_item_fn(self, i); }
    fn visit_impl_item_const(&mut self, i: &'a syn::ImplItemConst) { if !self.trait_impl { self.out("const", &i.ident); } visit::visit_impl_item_const(self, i); }
    fn visit_item_fn(&mut self, i: &'a syn::ItemFn) { let t = i.attrs.iter().any(|a| a.path().is_ident("test")); self.out(if t {"test"} else {"fn"}, &i.sig.ident); visit::visit_item_fn(self, i); }
    fn visit_item_const(&mut self, i: &'a syn::ItemConst) { if i.ident != "_" { self.out("const", &i.ident); } visit::visit_item_const(self, i); }
    fn visit_item_static(&mut self, i: &'a syn::ItemStatic) { self.out("static", &i.ident); visit::visit_item_static(self, i); }
    fn visit_item_type(&mut self, i: &'a syn::ItemType) { self.out("type", &i.ident); visit::visit_item_type(self, i); }
    fn visit_item_mod(&mut self, i: &'a syn::ItemMod) { self.out("mod", &i.ident); let t = self.test; visit::visit_item_mod(self, i); self.test = t; }
}
fn main() {
    for f in std::env::args().skip(1) {
        let s = std::fs::read_to_string(&f).unwrap();
        let Ok(p) = syn::parse_file(&s) else { eprintln!("skip {f}"); continue };
        let mut v = V { file: f, owner: vec![], trait_impl: false, test: false };
        v.visit_file(&p);
    }
}
