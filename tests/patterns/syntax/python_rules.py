# mypy: ignore-errors
"""Books written in Python. Linters take types of variables for annotations, so they leave this file alone."""

from exirkit.patterns import PythonBook

GOOD = PythonBook("mine")


@GOOD.rule("fuse.silu", equiv={"rtol": 1e-5, "atol": 1e-6})
class _:
    """A value times its sigmoid is one operator."""

    x: "f32 [*S]"

    def match(x):
        return aten.mul.Tensor(x, aten.sigmoid.default(x))

    def replace(x):
        return aten.silu.default(x)


@GOOD.rule("fold.linear-bias", where="users(l) == 1")
class _:
    x: "f32 [*B, K]"
    w: "const f32 [N, K]"
    c: "const f32 [N]"
    equiv = {"rtol": 1e-4, "atol": 1e-4}

    def match(x, w, c):
        l = aten.linear.default(x, w, None)
        return aten.add.Tensor(l, c)

    def replace(x, w, c):
        return aten.linear.default(x, w, c)


ADDITIONS = PythonBook("additions")


@ADDITIONS.rule("layout.cat-before-permute")
class _:
    xs: "list of any [*S]"
    p: "perm of S"
    d: "axis of S"

    def match(xs, p, d):
        return aten.cat.default([aten.permute_copy.default(x, p) for x in xs], d)

    def replace(xs, p, d):
        return aten.permute_copy.default(aten.cat.default(xs, p[norm(d, xs[0])]), p)


@ADDITIONS.rule("simplify.relu-over-chain")
class _:
    x: "f32 [*S]"

    def match(x):
        l = aten.relu.default(x)
        v = chain(l, [aten.view_copy.default, aten.permute_copy.default], users=1)
        return aten.relu.default(v)

    def replace(x):
        return along(v, aten.relu.default(x))


@ADDITIONS.rule("simplify.neg-of-every-user")
class _:
    x: "f32 [*S]"
    ks: "floats"

    def match(x, ks):
        d = aten.neg.default(x)
        return (*[aten.mul.Scalar(u, k) for u, k in zip(users(d), ks)],)

    def replace(x, ks):
        return (*[aten.mul.Scalar(x, -k) for k in ks],)


LIMITS = PythonBook(
    "limits",
    attributes={"act": {"lo": "float", "hi": "float", "key": "L", "means": "aten.clamp.default(result, lo, hi)"}},
)


@LIMITS.rule("fuse.add-limits", where=["users(s) == 1", "no(s, act)"])
class _:
    x: "f32 [~S]"
    y: "f32 [~S]"
    lo: "float"
    hi: "float"

    def match(x, y, lo, hi):
        s = aten.add.Tensor(x, y)
        return aten.hardtanh.default(s, lo, hi)

    def replace(x, y, lo, hi):
        return aten.add.Tensor(x, y) @ act(lo, hi)


WRONG = PythonBook()


@WRONG.rule("wrong")
class _:
    x: "f32 [*S]"

    def match(x):
        return aten.rellu.default(x)

    def replace(x):
        return x


TABLES = PythonBook(
    "mine", tables={"swapped": {"aten.le.Tensor": "aten.ge.Tensor", "aten.lt.Tensor": "aten.gt.Tensor"}}
)


@TABLES.rule("comparison-swapped")
class _:
    f: "op in swapped"
    x: "f32 [*S]"
    y: "f32 [*S]"

    def match(f, x, y):
        return f(x, y)

    def replace(f, x, y):
        return swapped[f](y, x)
