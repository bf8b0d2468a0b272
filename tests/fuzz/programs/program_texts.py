"""Programs as text that tests of the validation bench share; each shows what it is named after."""

from __future__ import annotations

HEAD = "program(1)\n"

TEXTS: dict[str, str] = {
    "plain": """program(1)
w = parameter("f32[5, 3]", dyadic(3))
c = constant("f32[2, 3]", dyadic(4, layout="transposed"))

def forward(x: "f32[2, 5]"):
    y0 = aten.mm.default(x, w)
    y1 = aten.add.Tensor(y0, c, alpha=2)
    y2 = aten.relu.default(y1)
    y3, _ = aten.max.dim(y2, 1)
    y4 = aten.sum.dim_IntList(y2, [0], True, dtype=torch.float64)
    y5 = aten.cat.default([y2, y1], 0)
    unused = aten.exp.default(y5)
    return y5, y4, y3

run("forward", x=dyadic(1))
""",
    "state": """program(1)
b = buffer("f32[3]", zeros())
last = buffer("f32[2, 3]", dyadic(5))
other = buffer("f32[3]", numbers([1, 2.5, -0.0]))

def forward(x: "f32[2, 3]"):
    y = aten.add.Tensor(x, b)
    z = aten.sum.dim_IntList(y, [0])
    update(b, z)
    update(last, x)
    return y, b, last

run("forward", x=dyadic(1))
run("forward", x=dyadic(2))
run("forward", x=dyadic(3))
""",
    "swap": """program(1)
a = buffer("f32[3]", numbers([1, 2, 3]))
b = buffer("f32[3]", numbers([4, 5, 6]))

def forward(x: "f32[3]"):
    y = aten.mul.Tensor(a, x)
    update(a, b)
    update(b, a)
    return y

run("forward", x=dyadic(1))
run("forward", x=dyadic(2))
""",
    "one_value_to_two": """program(1)
a = buffer("f32[3]", zeros())
b = buffer("f32[3]", zeros())

def forward(x: "f32[3]"):
    y = aten.sub.Tensor(x, a)
    update(a, y)
    update(b, y)
    return y, y

run("forward", x=dyadic(1))
run("forward", x=dyadic(2))
""",
    "writes_to_input": """program(1)
def forward(x: "f32[3]", y: "f32[3]"):
    z = aten.add.Tensor(x, y)
    update(x, z)
    return x, z

run("forward", x=dyadic(1), y=dyadic(2))
""",
    "outputs": """program(1)
w = parameter("f32[2]", dyadic(1))
c = constant("f32[2]", dyadic(2))

def forward(x: "f32[2]", n: "i64[2]"):
    y = aten.mul.Tensor(x, 2)
    return y, y, x, w, c, None, 7, 2.5, True

run("forward", x=dyadic(1), n=dyadic(2))
""",
    "nothing": """program(1)
b = buffer("f32[2]", zeros())

def forward(x: "f32[2]"):
    update(b, x)
    return

run("forward", x=dyadic(1))
""",
    "methods": """program(1)
w = parameter("f32[2, 2]", dyadic(1))
b = buffer("f32[2]", zeros())

def forward(x: "f32[2]"):
    y = aten.mv.default(w, x)
    y1 = aten.add.Tensor(y, b)
    update(b, y1)
    return y1

def read(z: "f32[2]"):
    r = aten.mul.Tensor(b, z)
    return r

run("forward", x=dyadic(1))
run("read", z=dyadic(2))
run("forward", x=dyadic(3))
run("read", z=dyadic(4))
""",
    "symbols": """program(1)
s0 = symbol(1, 9)
s1 = symbol(2, 6)
one = symbol(3, 3)
w = parameter("f32[5, 3]", dyadic(3))

def forward(x: "f32[s0, 5]", y: "f32[2 * s1 + 1, s0]", z: "f32[one]"):
    m = aten.mm.default(x, w)
    n = aten.mm.default(y, m)
    flat = aten.view_copy.default(n, [3 * (2 * s1 + 1)])
    wide = aten.expand_copy.default(z, [s0 + 1, 3])
    return flat, wide, s0, s1 + 1, 2 * s0, one

run("forward", s0=9, s1=2, one=3, x=dyadic(1), y=dyadic(2), z=dyadic(3))
run("forward", s0=1, s1=6, one=3, x=dyadic(1), y=dyadic(2), z=dyadic(3))
run("forward", s0=4, s1=3, one=3, x=dyadic(1), y=dyadic(2), z=dyadic(3))
""",
    "cond": """program(1)
s0 = symbol(2, 9)
w = parameter("f32[3]", dyadic(3))

def forward(x: "f32[s0, 3]"):
    some = aten.sum.default(x)
    positive = aten.gt.Scalar(some, 0)
    def more(v, u):
        v1 = aten.mul.Tensor(v, u)
        v2 = aten.sum.dim_IntList(v1, [0])
        v3 = aten.gt.Scalar(v2, 0)
        v4 = aten.all.default(v3)
        def inner(i):
            i1 = aten.add.Scalar(i, 1)
            return i1
        def outer(o):
            o1 = aten.expand_copy.default(o, [s0, 3])
            o2 = aten.mul.Scalar(o1, 3)
            return o2
        v5 = cond(v4, inner, outer, [v1])
        return v5, v2
    def less(q, p):
        q1 = aten.sub.Tensor(q, p)
        q2 = aten.neg.default(p)
        return q1, q2
    y, z = cond(positive, more, less, [x, w])
    twice = aten.mul.Tensor(y, z)
    return twice, z

run("forward", s0=2, x=dyadic(1))
run("forward", s0=5, x=dyadic(2))
run("forward", s0=9, x=dyadic(3))
""",
    "map": """program(1)
w = parameter("f32[3]", dyadic(3))

def forward(x: "f32[4, 3]"):
    def turn(v, u):
        v1 = aten.mul.Tensor(v, u)
        v2 = aten.sum.default(v)
        return v1, v2
    y, z = map(turn, [x], [w])
    return y, z

run("forward", x=dyadic(1))
""",
    "scan": """program(1)
w = parameter("f32[3]", dyadic(3))

def forward(x: "f32[4, 3]", start: "f32[3]"):
    def turn(c, v, u):
        c1 = aten.add.Tensor(c, v)
        v1 = aten.mul.Tensor(c1, u)
        return c1, v1
    end, all_values = scan(turn, [start], [x], [w])
    return end, all_values

run("forward", x=dyadic(1), start=dyadic(2))
""",
    "while_loop": """program(1)
w = parameter("f32[3]", dyadic(3))
zero = buffer("i64[]", zeros())

def forward(x: "f32[3]"):
    def on(i, a, e):
        going = aten.lt.Scalar(i, 3)
        return going
    def turn(j, b, f):
        j1 = aten.add.Scalar(j, 1)
        b1 = aten.add.Tensor(b, f)
        return j1, b1
    count, y = while_loop(on, turn, [zero, x], [w])
    return y, count

run("forward", x=dyadic(1))
""",
    "layouts": """program(1)
w = parameter("f32[4, 3, 2, 2]", dyadic(3, layout="channels_last"))
e = buffer("f32[2, 4, 1, 1]", dyadic(4, layout="expanded"))

def forward(x: "f32[2, 3, 5, 7]"):
    y = aten.convolution.default(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    z = aten.add.Tensor(y, e)
    p = aten.permute_copy.default(z, [0, 2, 3, 1])
    q = aten.clone.default(p, memory_format=torch.contiguous_format)
    return z, q

run("forward", x=dyadic(1, layout="channels_last"))
run("forward", x=dyadic(2, layout="channels_last"))
""",
    "dtypes": """program(1)
h = parameter("bf16[3]", dyadic(1, low=-1, high=1, bits=5))
k = buffer("i64[3]", numbers([9223372036854775807, -9223372036854775808, 0]))
m = constant("bool[3]", dyadic(2))

def forward(x: "f16[3]", n: "u8[3]"):
    y = aten.mul.Tensor(x, h)
    a = aten.where.self(m, y, x)
    b = aten._to_copy.default(n, dtype=torch.int32)
    c = aten.full.default([2, 3], -inf, dtype=torch.float32)
    d = aten.add.Tensor(k, b)
    return y, a, b, c, d

run("forward", x=dyadic(1), n=special(2))
""",
    "data_dependent": """program(1)
s0 = symbol(2, 8)

def forward(x: "f32[s0]", n: "i64[1]"):
    where = aten.nonzero.default(x)
    w1 = aten.add.Tensor(where, 1)
    k = aten.item.default(n)
    aten.sym_constrain_range_for_size.default(k, min=2, max=6)
    f = aten.full.default([k, 3], 1.5)
    g = aten.mul.Tensor(f, 2)
    return w1, g, k

run("forward", s0=3, x=dyadic(1), n=numbers([3]))
run("forward", s0=8, x=dyadic(2), n=numbers([6]))
""",
    "views": """program(1)
b = buffer("f32[2, 3]", dyadic(1))

def forward(x: "f32[2, 3]"):
    v = aten.view.default(b, [6])
    s = aten.slice.Tensor(v, 0, 1, 9223372036854775807, 2)
    t = aten.permute.default(x, [1, 0])
    first, second = aten.split_with_sizes.default(t, [1, 2])
    whole = aten.split.Tensor(t, 3)
    u = aten.select.int(t, 0, -1)
    update(b, x)
    return v, s, second, u, whole

run("forward", x=dyadic(2))
run("forward", x=dyadic(3))
""",
}
TEXTS["silent_views"] = """program(1)
b = buffer("f32[2, 3]", dyadic(1))

def forward(x: "f32[2, 3]"):
    v = aten._unsafe_view.default(b, [3, 2])
    d = aten.dropout.default(b, 0.5, False)
    update(b, x)
    return v, d

run("forward", x=dyadic(2))
run("forward", x=dyadic(3))
"""
