//! Rules for code, on the parsed file: lengths, forbidden macros and calls, bare numbers.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::SourceFile;
use super::ratchet::{LimitKind, Sizes};
use crate::Violation;

const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 600;
const DEBUG_MACROS: [&str; 2] = ["todo", "dbg"];
const PRINT_MACROS: [&str; 4] = ["println", "print", "eprintln", "eprint"];
/// The last two words of paths that reach outside.
const ENVIRONMENT_CALLS: [&str; 7] = [
    "SystemTime::now",
    "Instant::now",
    "env::var",
    "env::var_os",
    "env::vars",
    "env::current_dir",
    "Command::new",
];

/// Checks a file; functions and files over a limit are added to `sizes`, for the ratchet.
pub(crate) fn check(file: &SourceFile, sizes: &mut Sizes) -> Vec<Violation> {
    let parsed = match syn::parse_file(&file.text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let place = format!("{}:{}", file.path, error.span().start().line);
            return vec![Violation::new(place, format!("cannot be parsed: {error}"))];
        }
    };
    let mut look =
        RuleVisitor { file, sizes, violations: Vec::new(), scope: Vec::new(), test_lines: 0 };
    look.visit_file(&parsed);
    if is_crate_root(&file.path) && !file.may_be_unsafe && !forbids_unsafe(&parsed) {
        look.report(Span::call_site(), "has no #![forbid(unsafe_code)]");
    }
    let lines = file.text.lines().count() - look.test_lines;
    let violations = look.violations;
    if lines > MAX_FILE_LINES && !file.is_test && !file.is_generated {
        sizes.insert((LimitKind::File, file.path.clone(), "-".to_owned()), lines);
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

struct RuleVisitor<'a> {
    file: &'a SourceFile,
    sizes: &'a mut Sizes,
    violations: Vec<Violation>,
    /// The types and modules around the place looked at.
    scope: Vec<String>,
    /// Lines of test modules.
    test_lines: usize,
}

impl RuleVisitor<'_> {
    fn report(&mut self, at: Span, what: impl Into<String>) {
        let place = format!("{}:{}", self.file.path, at.start().line);
        self.violations.push(Violation::new(place, what));
    }

    fn with_scope(&mut self, owner: String, look: impl FnOnce(&mut Self)) {
        self.scope.push(owner);
        look(self);
        self.scope.pop();
    }

    fn measure_function(&mut self, signature: &syn::Signature, whole: Span, is_public: bool) {
        if self.file.is_test || self.file.is_generated {
            return;
        }
        let mut words = self.scope.clone();
        words.push(signature.ident.to_string());
        let name = words.join("::");
        let lines = whole.end().line - signature.span().start().line + 1;
        if lines > MAX_FUNCTION_LINES {
            self.sizes.insert((LimitKind::Function, self.file.path.clone(), name.clone()), lines);
        }
        let bare = signature.inputs.iter().filter(|input| is_bare_u64(input)).count();
        if is_public && bare >= 2 && !self.file.may_pass_bare_numbers {
            self.sizes.insert((LimitKind::BareNumbers, self.file.path.clone(), name), bare);
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
pub(super) fn is_test_item(attributes: &[syn::Attribute]) -> bool {
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

impl<'ast> Visit<'ast> for RuleVisitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test_item(&item.attrs) {
            let span = item.span();
            self.test_lines += span.end().line - span.start().line + 1;
            return;
        }
        self.with_scope(item.ident.to_string(), |look| visit::visit_item_mod(look, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_test_item(&item.attrs) {
            return;
        }
        self.with_scope(type_name(&item.self_ty), |look| visit::visit_item_impl(look, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.with_scope(item.ident.to_string(), |look| visit::visit_item_trait(look, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_test_item(&item.attrs) {
            return;
        }
        self.measure_function(&item.sig, item.span(), is_public(&item.vis));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_test_item(&item.attrs) {
            return;
        }
        self.measure_function(&item.sig, item.span(), is_public(&item.vis));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.measure_function(&item.sig, item.span(), true);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let name = item.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        if DEBUG_MACROS.contains(&name.as_str()) {
            self.report(item.span(), format!("{name}! is for debugging only: remove it"));
        }
        if PRINT_MACROS.contains(&name.as_str()) && !self.file.may_print {
            self.report(
                item.span(),
                format!("{name}! below the printing floor: return it instead"),
            );
        }
        visit::visit_macro(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let [.., before, last] = &words[..] {
            let end = format!("{before}::{last}");
            if ENVIRONMENT_CALLS.contains(&end.as_str()) && !self.file.may_use_environment {
                self.report(path.span(), format!("{end} below the engine: let it come in"));
            }
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str) -> (Vec<Violation>, Vec<(LimitKind, String, usize)>) {
        let mut sizes = Sizes::new();
        let violations = check(&SourceFile::with_all_rules("storage/x/src/a.rs", text), &mut sizes);
        let sizes = sizes.into_iter().map(|((kind, _, item), n)| (kind, item, n)).collect();
        (violations, sizes)
    }

    #[test]
    fn long_functions_are_measured_but_not_in_tests() {
        let body = "let _ = 1;\n".repeat(MAX_FUNCTION_LINES);
        let text = format!("impl A {{ fn long() {{\n{body}}} }}");
        assert_eq!(
            check_text(&text).1,
            [(LimitKind::Function, "A::long".to_owned(), MAX_FUNCTION_LINES + 2)]
        );
        assert_eq!(check_text(&format!("#[cfg(test)]\nmod tests {{ {text} }}")).1, []);
    }

    #[test]
    fn bare_numbers_in_public_signature_are_found() {
        let found = check_text("pub fn f(a: u64, b: u64) {}").1;
        assert_eq!(found, [(LimitKind::BareNumbers, "f".to_owned(), 2)]);
        assert_eq!(check_text("pub fn f(a: u64, b: Txg) {}\nfn g(a: u64, b: u64) {}").1, []);
    }

    #[test]
    fn printing_and_environment_calls_are_found() {
        assert_eq!(check_text("fn f() { println!(); }").0.len(), 1);
        assert_eq!(check_text("fn f() { todo!() }").0.len(), 1);
        assert_eq!(check_text("fn f() { std::time::Instant::now(); }").0.len(), 1);
        assert_eq!(check_text("#[cfg(test)] mod t { fn f() { println!(); } }").0, []);
    }

    #[test]
    fn test_modules_do_not_count_as_lines() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(MAX_FILE_LINES));
        assert_eq!(check_text(&tests).1, []);
        let code = "// x\n".repeat(MAX_FILE_LINES + 1);
        assert_eq!(check_text(&code).1, [(LimitKind::File, "-".to_owned(), MAX_FILE_LINES + 1)]);
    }

    #[test]
    fn crate_without_forbid_unsafe_is_reported() {
        let mut sizes = Sizes::new();
        let bare = SourceFile::with_all_rules("storage/x/src/lib.rs", "//! x\n");
        let safe =
            SourceFile::with_all_rules("storage/x/src/lib.rs", "//! x\n#![forbid(unsafe_code)]\n");
        assert_eq!(check(&bare, &mut sizes).len(), 1);
        assert_eq!(check(&safe, &mut sizes), []);
    }
}
