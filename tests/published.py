"""Results recorded by the authors of RealFM for 8 devices, a few dozen of 864 rows, and all if at hand.

Columns: data set, experiment, marginal cost, payoff scale, m^o in theory, data used, final local accuracy,
final federated accuracy, contribution. Contributions are counted from the data used; linear rows use
phi(a) = a and ignore the payoff scale.
"""

import csv
from pathlib import Path

from conftest import SHARED

ROWS = [
    ("cifar10", "linear-nonuniformC", 0.00028383562299249925, 1, 829, 954, 0.3913, 0.5521, 1520),
    ("cifar10", "linear-nonuniformPC", 0.000244609962377678, 1.0032797255404893, 920, 1050, 0.4008, 0.5861, 1807),
    ("cifar10", "linear-uniform", 0.00025000000000000001, 1, 906, 1035, 0.3483, 0.5752, 1942),
    ("cifar10", "nonuniformC", 0.00028383562299249925, 1, 169228, 6249, 0.6326, 0.7849, 41343),
    ("cifar10", "nonuniformPC", 0.000244609962377678, 1.0032797255404893, 204704, 6250, 0.6515, 0.7749, 42868),
    ("cifar10", "uniform", 0.00025000000000000001, 1, 198478, 6250, 0.6092, 0.7857, 45934),
    ("cifar10", "linear-nonuniformC", 0.00028383562299249925, 1, 829, 954, 0.2675, 0.5047, 1789),
    ("cifar10", "linear-nonuniformPC", 0.000244609962377678, 1.0032797255404893, 920, 1050, 0.2337, 0.5192, 2217),
    ("cifar10", "linear-uniform", 0.00025000000000000001, 1, 906, 1035, 0.2687, 0.5072, 1988),
    ("cifar10", "nonuniformC", 0.00028383562299249925, 1, 169228, 6249, 0.3349, 0.7849, 27964),
    ("cifar10", "nonuniformPC", 0.000244609962377678, 1.0032797255404893, 204704, 6250, 0.3597, 0.7893, 33184),
    ("cifar10", "uniform", 0.00025000000000000001, 1, 198478, 6250, 0.4342, 0.7726, 34604),
    ("cifar10", "linear-nonuniformC", 0.00028383562299249925, 1, 829, 954, 0.313, 0.525, 1700),
    ("cifar10", "linear-nonuniformPC", 0.000244609962377678, 1.0032797255404893, 920, 1050, 0.2845, 0.2917, 1079),
    ("cifar10", "linear-uniform", 0.00025000000000000001, 1, 906, 1035, 0.3067, 0.5237, 1902),
    ("cifar10", "nonuniformC", 0.00028383562299249925, 1, 169228, 6249, 0.4969, 0.8172, 40898),
    ("cifar10", "nonuniformPC", 0.000244609962377678, 1.0032797255404893, 204704, 6250, 0.4551, 0.8201, 43350),
    ("cifar10", "uniform", 0.00025000000000000001, 1, 198478, 6250, 0.4419, 0.8104, 40004),
    ("mnist", "linear-nonuniformC", 4.3248690727326488e-05, 1, 511, 728, 0.9693, 0.989, 1183),
    ("mnist", "linear-nonuniformPC", 3.8395654322702717e-05, 0.98340440094051484, 553, 785, 0.9737, 0.9898, 1204),
    ("mnist", "linear-uniform", 4.0000000000000003e-05, 1, 538, 765, 0.9705, 0.9881, 1204),
    ("mnist", "nonuniformC", 4.3248690727326488e-05, 1, 120902281, 7500, 0.9894, 0.9946, 350472534),
    ("mnist", "nonuniformPC", 3.8994761653601063e-05, 1.0141034570756933, 131123531, 7500, 0.991, 0.9946, 410958277),
    ("mnist", "uniform", 4.0000000000000003e-05, 1, 127601367, 7500, 0.9894, 0.9955, 477132992),
    ("mnist", "linear-nonuniformC", 4.3248690727326488e-05, 1, 511, 728, 0.6451, 0.9754, 8365),
    ("mnist", "linear-nonuniformPC", 3.8395654322702717e-05, 0.98340440094051484, 553, 785, 0.6718, 0.9752, 8686),
    ("mnist", "linear-uniform", 4.0000000000000003e-05, 1, 538, 765, 0.6675, 0.9701, 8329),
    ("mnist", "nonuniformC", 4.347347522389004e-05, 1, 120469999, 7500, 0.9783, 0.9952, 164976766),
    ("mnist", "nonuniformPC", 3.8994761653601063e-05, 1.0141034570756933, 131123531, 7500, 0.8884, 0.9947, 9668470),
    ("mnist", "uniform", 4.0000000000000003e-05, 1, 127601367, 7500, 0.9686, 0.9944, 93027916),
    ("mnist", "linear-nonuniformC", 4.3248690727326488e-05, 1, 511, 728, 0.757, 0.9858, 6018),
    ("mnist", "linear-nonuniformPC", 3.8395654322702717e-05, 0.98340440094051484, 553, 785, 0.8471, 0.9862, 4407),
    ("mnist", "linear-uniform", 4.0000000000000003e-05, 1, 538, 765, 0.7854, 0.9836, 5719),
    ("mnist", "nonuniformC", 4.347347522389004e-05, 1, 120469999, 7500, 0.9852, 0.9953, 290053570),
    ("mnist", "nonuniformPC", 3.8994761653601063e-05, 1.0141034570756933, 131123531, 7500, 0.9798, 0.9952, 208311682),
    ("mnist", "uniform", 4.0000000000000003e-05, 1, 127601367, 7500, 0.9779, 0.9947, 166563573),
    ("cifar10", "linear-nonuniformPC", 0.0002351085519903374, 1.0195363169872127, 946, 1077, 0.3202, 0.2917, 955),
    ("cifar10", "linear-nonuniformPC", 0.00024507735450807769, 0.98642224112018062, 919, 1049, 0.2929, 0.2917, 1044),
]

NAMES = (
    "dataset experiment marginal_cost payoff_scale m_local_theory m_local_used acc_local acc_federated "
    "m_federated"
).split()


def all_rows() -> list[tuple]:
    """Every published row; the ones above where the full record is not at hand."""
    record: Path = SHARED / "published" / "devices_8.csv"
    if not record.exists():
        return ROWS
    with record.open() as file:
        return [
            (row["dataset"], row["experiment"], *(float(row[name]) for name in NAMES[2:]))
            for row in csv.DictReader(file)
        ]
