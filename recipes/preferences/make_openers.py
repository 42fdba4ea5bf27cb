"""Write `openers.txt`: 400 neutral beginnings of sentences, for a model to continue: `python make_openers.py`.

An opener names something that people have opinions about and stops before the opinion. Three frames are filled from
lists: a thing in a place ("The armchair in the study"), somebody's deed ("Our postman mentioned the ladder and"), and
a thing at a moment ("Before lunch the printer in room nine"). The seed is fixed; an opener that the demo has is left
out.
"""

from __future__ import annotations

import random
from importlib import resources
from pathlib import Path

SEED = 0
COUNT = 400
LONGEST = 7

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

PEOPLE = (
    "Our postman",
    "My aunt",
    "The electrician",
    "A student from Oslo",
    "His grandmother",
    "Their landlord",
    "The twins upstairs",
    "Her cousin",
    "The librarian",
    "My old flatmate",
    "The goalkeeper",
    "A woman in red",
    "The bus driver",
    "Somebody at work",
    "The new tenant",
    "The night porter",
)

DEEDS = (
    "mentioned the ladder",
    "opened the side gate",
    "carried the boxes upstairs",
    "cooked rice and beans",
    "called about the invoice",
    "sang the third song",
    "measured the bedroom floor",
    "read the last page",
    "ordered the vegetable soup",
    "parked beside our van",
    "walked the dog twice",
    "repainted the front door",
    "wrote to the council",
    "watched the evening news",
    "moved to another street",
    "tried the brown shoes",
)

ENDINGS = ("and", "while", "because", "so", "before")

MOMENTS = (
    "Before lunch",
    "Around noon",
    "Last autumn",
    "This time",
    "Until yesterday",
    "These days",
    "On Friday",
    "Tonight",
)


def main() -> None:
    """Write the openers beside this script."""
    Path(__file__).with_name("openers.txt").write_text("\n".join(openers()) + "\n", encoding="utf-8")


def openers() -> list[str]:
    """Return `COUNT` different openers of at most `LONGEST` words, the same ones each time.

    All things are among them once; deeds and moments share the rest equally.
    """
    generator = random.Random(SEED)
    taken = set((resources.files("kleash.demo") / "openers.txt").read_text(encoding="utf-8").splitlines())
    things = [f"The {thing} {place}" for thing, place in THINGS.items()]
    deeds = [f"{person} {deed} {ending}" for person in PEOPLE for deed in DEEDS for ending in ENDINGS]
    moments = [f"{moment} the {thing} {place}" for moment in MOMENTS for thing, place in THINGS.items()]
    things, deeds, moments = (
        [opener for opener in frame if len(opener.split()) <= LONGEST and opener not in taken]
        for frame in (things, deeds, moments)
    )
    half = (COUNT - len(things)) // 2
    drawn = [*things, *generator.sample(deeds, half), *generator.sample(moments, COUNT - len(things) - half)]
    return generator.sample(drawn, COUNT)


if __name__ == "__main__":
    main()
