"""Errors of the notes that are known: each is the reason of a row that differs."""

ERRORS = {
    "E1": "the table prints 8192; its formula 4 d l L and its own total of 25984 make it 16384",
    "E2": "the unit is 2^20, not 10^6 as the heading says",
    "E3": "the table counts 2 matrices an FFN; Llama-2 has 3 (gate, up, down)",
    "E4": "2 L d elements a token are half of what is printed, and 2 bytes each a quarter of it",
    "E5": "the vendor has about 15.1 TFLOP/s and 272 GB/s, not 15.39 and 768; memory bound by both",
    "E6": "one note counts FLOP per element, the other per byte at 2 bytes an element: half of it",
    "E7": "one note sends the n x l scores through memory, the other keeps them on the chip",
    "E8": "Z = Qmax - Rmin / S sends the smallest number to the highest code; Qmin is right",
    "E9": "the traffic is nearly the same only while the KV is small beside the weights",
    "E10": "activations are left out of the table; with them it is (2 n + d) d elements a product",
    "E11": "true from admission; from arrival, under load, static batches wait far longer",
    "E12": "small weights do not speed up a prompt bound by compute; low-precision products do",
    "E13": "the first token gains by tensor parallelism; split keys help decodes only",
    "E14": "the hard loss mixes two indices; it is a sum over one",
}
