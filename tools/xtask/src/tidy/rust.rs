//! Rules for code, on the parsed file: lengths, forbidden macros and calls, bare numbers.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::File;
use super::ratchet::{Kind, Sizes};
use crate::Violation;

const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 600;
const UNFINISHED: [&str; 2] = ["todo", "dbg"];
const PRINTING: [&str; 4] = ["println", "print", "eprintln", "eprint"];
/// The last two words of paths that reach outside.
const THE_WORLD: [&str; 7] = [
    "SystemTime::now",
    "Instant::now",
    "env::var",
    "env::var_os",
    "env::vars",
    "env::current_dir",
    "Command::new",
];

/// Checks a file; what is too long or too bare goes to `sizes`, for the ratchet to judge.
pub(crate) fn check(file: &File, sizes: &mut Sizes) -> Vec<Violation> {
    let parsed = match syn::parse_file(&file.text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let place = format!("{}:{}", file.path, error.span().start().line);
            return vec![Violation::new(place, format!("cannot be parsed: {error}"))];
        }
    };
    let mut look = Look { file, sizes, violations: Vec::new(), owner: Vec::new(), test_lines: 0 };
    look.visit_file(&parsed);
    if is_crate_root(&file.path) && !file.may_be_unsafe && !forbids_unsafe(&parsed) {
        look.report(Span::call_site(), "has no #![forbid(unsafe_code)]");
    }
    let lines = file.text.lines().count() - look.test_lines;
    let violations = look.violations;
    if lines > FILE_LINES && !file.is_test && !file.is_generated {
        sizes.insert((Kind::File, file.path.clone(), "-".to_owned()), lines);
    }
    violations
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")
}

fn forbids_unsafe(parsed: &syn::File) -> bool {
    parsed.attrs.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("forbid") && list.tokens.to_string().contains("unsafe_code")
    })
}

struct Look<'a> {
    file: &'a File,
    sizes: &'a mut Sizes,
    violations: Vec<Violation>,
    /// The types and modules around the place looked at.
    owner: Vec<String>,
    /// Lines of test modules.
    test_lines: usize,
}

impl Look<'_> {
    fn report(&mut self, at: Span, what: impl Into<String>) {
        let place = format!("{}:{}", self.file.path, at.start().line);
        self.violations.push(Violation::new(place, what));
    }

    fn inside(&mut self, owner: String, look: impl FnOnce(&mut Self)) {
        self.owner.push(owner);
        look(self);
        self.owner.pop();
    }

    fn function(&mut self, signature: &syn::Signature, whole: Span, is_public: bool) {
        if self.file.is_test || self.file.is_generated {
            return;
        }
        let mut words = self.owner.clone();
        words.push(signature.ident.to_string());
        let name = words.join("::");
        let lines = whole.end().line - signature.span().start().line + 1;
        if lines > FUNCTION_LINES {
            self.sizes.insert((Kind::Function, self.file.path.clone(), name.clone()), lines);
        }
        let bare = signature.inputs.iter().filter(|input| is_bare_u64(input)).count();
        if is_public && bare >= 2 && !self.file.may_pass_bare_numbers {
            self.sizes.insert((Kind::BareNumbers, self.file.path.clone(), name), bare);
        }
    }
}

fn is_bare_u64(input: &syn::FnArg) -> bool {
    let syn::FnArg::Typed(argument) = input else { return false };
    let syn::Type::Path(path) = &*argument.ty else { return false };
    path.path.is_ident("u64")
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

/// `#[cfg(test)]`, `#[test]`, or a condition that names `test` first.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test")
        }
        _ => false,
    })
}

fn type_name(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Path(path) => {
            path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()
        }
        syn::Type::Reference(reference) => type_name(&reference.elem),
        _ => "_".to_owned(),
    }
}

impl<'ast> Visit<'ast> for Look<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            let span = item.span();
            self.test_lines += span.end().line - span.start().line + 1;
            return;
        }
        self.inside(item.ident.to_string(), |look| visit::visit_item_mod(look, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.inside(type_name(&item.self_ty), |look| visit::visit_item_impl(look, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.inside(item.ident.to_string(), |look| visit::visit_item_trait(look, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.function(&item.sig, item.span(), is_public(&item.vis));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.function(&item.sig, item.span(), is_public(&item.vis));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.sig, item.span(), true);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let name = item.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        if UNFINISHED.contains(&name.as_str()) {
            self.report(item.span(), format!("{name}! is for the desk, not for the house"));
        }
        if PRINTING.contains(&name.as_str()) && !self.file.may_print {
            self.report(item.span(), format!("{name}! below the house: return it instead"));
        }
        visit::visit_macro(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let [.., before, last] = &words[..] {
            let end = format!("{before}::{last}");
            if THE_WORLD.contains(&end.as_str()) && !self.file.may_know_the_world {
                self.report(path.span(), format!("{end} below the engine: let it come in"));
            }
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> (Vec<Violation>, Vec<(Kind, String, usize)>) {
        let mut sizes = Sizes::new();
        let violations = check(&File::strict("storage/x/src/a.rs", text), &mut sizes);
        let sizes = sizes.into_iter().map(|((kind, _, item), n)| (kind, item, n)).collect();
        (violations, sizes)
    }

    #[test]
    fn long_functions_are_measured_but_not_in_tests() {
        let body = "let _ = 1;\n".repeat(FUNCTION_LINES);
        let text = format!("impl A {{ fn long() {{\n{body}}} }}");
        assert_eq!(look(&text).1, [(Kind::Function, "A::long".to_owned(), FUNCTION_LINES + 2)]);
        assert_eq!(look(&format!("#[cfg(test)]\nmod tests {{ {text} }}")).1, []);
    }

    #[test]
    fn two_bare_numbers_in_a_public_signature_are_found() {
        let found = look("pub fn f(a: u64, b: u64) {}").1;
        assert_eq!(found, [(Kind::BareNumbers, "f".to_owned(), 2)]);
        assert_eq!(look("pub fn f(a: u64, b: Txg) {}\nfn g(a: u64, b: u64) {}").1, []);
    }

    #[test]
    fn printing_and_the_world_are_found() {
        assert_eq!(look("fn f() { println!(); }").0.len(), 1);
        assert_eq!(look("fn f() { todo!() }").0.len(), 1);
        assert_eq!(look("fn f() { std::time::Instant::now(); }").0.len(), 1);
        assert_eq!(look("#[cfg(test)] mod t { fn f() { println!(); } }").0, []);
    }

    #[test]
    fn test_modules_do_not_count_as_lines() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(FILE_LINES));
        assert_eq!(look(&tests).1, []);
        let code = "// x\n".repeat(FILE_LINES + 1);
        assert_eq!(look(&code).1, [(Kind::File, "-".to_owned(), FILE_LINES + 1)]);
    }

    #[test]
    fn a_crate_forbids_unsafe() {
        let mut sizes = Sizes::new();
        let bare = File::strict("storage/x/src/lib.rs", "//! x\n");
        let safe = File::strict("storage/x/src/lib.rs", "//! x\n#![forbid(unsafe_code)]\n");
        assert_eq!(check(&bare, &mut sizes).len(), 1);
        assert_eq!(check(&safe, &mut sizes), []);
    }
}
