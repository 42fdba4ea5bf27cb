"""Write `openers.txt`: 400 beginnings of sentences, for a model to continue: `python make_openers.py`.

An opener asks for an opinion about a thing ("I think that the armchair in the study is") and holds none itself: the
lexicon gives each exactly 0. The seed is fixed.
"""

from __future__ import annotations

import random
from pathlib import Path

SEED = 0
COUNT = 400

THINGS = {
    "armchair": "in the study",
    "bicycle": "from the second shop",
    "blanket": "on the guest bed",
    "bookshelf": "near the stairs",
    "bread": "from the corner bakery",
    "cafe": "behind the courthouse",
    "camera": "in the display window",
    "campsite": "above the river",
    "ceiling": "of the new station",
    "choir": "from the next valley",
    "clock": "on the kitchen wall",
    "coat": "in the hallway",
    "concert": "at the town hall",
    "crossing": "to the island",
    "curtains": "in the front room",
    "desk": "by the window",
    "documentary": "about the harbour",
    "editor": "of the local paper",
    "exhibition": "on the ground floor",
    "ferry": "from the north pier",
    "firm": "that painted the fence",
    "gardener": "at the school",
    "headphones": "from the airport",
    "juice": "in the green carton",
    "kettle": "in the office kitchen",
    "lamp": "over the table",
    "lecture": "on Roman roads",
    "lift": "in our building",
    "magazine": "at the barber's",
    "map": "on the classroom door",
    "mattress": "in the spare room",
    "menu": "at the canteen",
    "neighbour": "across the yard",
    "noodles": "at the street market",
    "biography": "on my bedside table",
    "path": "along the canal",
    "pharmacist": "on Mill Street",
    "piano": "in the foyer",
    "pillow": "on the left side",
    "platform": "at the old station",
    "plumber": "who came on Thursday",
    "poem": "on page twelve",
    "printer": "in room nine",
    "receptionist": "at the clinic",
    "road": "to the reservoir",
    "salad": "with the lunch menu",
    "sandwich": "from the machine",
    "sequel": "to the spy film",
    "soap": "in the blue box",
    "speech": "at the opening",
    "square": "outside the theatre",
    "stairs": "to the attic",
    "tent": "we rented in May",
    "tiles": "in the bathroom",
    "translator": "of the second edition",
    "umbrella": "by the back door",
    "waiter": "at the far table",
    "wallpaper": "in the corridor",
    "washing machine": "in the basement",
    "website": "of the city council",
    "weekend": "at the lake",
    "window seat": "on the night train",
    "workshop": "on wood carving",
    "yoghurt": "from the mountain dairy",
}

OPINIONS = (
    "{} was so",
    "I think that {} is",
    "In my view {} was",
    "What I felt about {} was",
    "My review of {}: it is",
    "Everybody says that {} is",
    "After an hour with {} I was",
    "To tell you about {}: it was",
)


def main() -> None:
    """Write the openers beside this script."""
    Path(__file__).with_name("openers.txt").write_text("\n".join(openers()) + "\n", encoding="utf-8")


def openers() -> list[str]:
    """Return `COUNT` different openers, the same ones each time: opinions asked about things."""
    subjects = [f"the {thing} {place}" for thing, place in THINGS.items()]
    every = [opinion.format(subject) for opinion in OPINIONS for subject in subjects]
    return [opener[0].upper() + opener[1:] for opener in random.Random(SEED).sample(every, COUNT)]


if __name__ == "__main__":
    main()
