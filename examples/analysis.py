"""A small study of a year of made-up sensor readings: which room runs warm, and what does a degree cost?

Run it in a box with the scientific layer:  glovebox run --workspace DIR examples/analysis.py"""

import os

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

ROOMS = {"cellar": 11.0, "kitchen": 21.5, "loft": 19.0, "office": 20.5, "workshop": 16.0}
ARTIFACTS = "/workspace/artifacts"


def make_readings(seed: int = 7) -> pd.DataFrame:
    """Hourly temperature and heating power of every room, with seasons, days and noise."""
    random = np.random.default_rng(seed)
    hours = pd.date_range("2025-01-01", "2025-12-31 23:00", freq="h")
    day = hours.day_of_year.to_numpy()
    hour = hours.hour.to_numpy()
    outside = 10 - 11 * np.cos(2 * np.pi * (day - 15) / 365) + 3 * np.sin(2 * np.pi * (hour - 9) / 24)
    frames = []
    for room, target in ROOMS.items():
        temperature = target + 0.18 * (outside - 10) + random.normal(0, 0.7, len(hours))
        power = np.clip(55 * (target - outside) + random.normal(0, 60, len(hours)), 0, None)
        frames.append(pd.DataFrame({"time": hours, "room": room, "temperature": temperature, "watts": power}))
    return pd.concat(frames, ignore_index=True)


def summarise(readings: pd.DataFrame) -> pd.DataFrame:
    """One line for each room."""
    grouped = readings.groupby("room")
    table = grouped["temperature"].agg(mean="mean", lowest="min", highest="max").round(1)
    table["kWh"] = (grouped["watts"].sum() / 1000).round().astype(int)
    table["share"] = (100 * table["kWh"] / table["kWh"].sum()).round(1).astype(str) + " %"
    return table.sort_values("kWh", ascending=False)


def draw(readings: pd.DataFrame, path: str) -> None:
    """Heating by month, one colour for each room."""
    month = readings["time"].dt.month
    monthly = readings.pivot_table(index=month, columns="room", values="watts", aggfunc="sum") / 1000
    axes = monthly.plot.bar(stacked=True, figsize=(8, 4.5), width=0.85, colormap="viridis")
    axes.set(xlabel="month", ylabel="kWh", title="Heating by month")
    axes.legend(title=None, ncols=5, loc="upper center", frameon=False)
    plt.tight_layout()
    plt.savefig(path, dpi=110)


def main() -> None:
    readings = make_readings()
    print(f"{len(readings):,} readings of {readings['room'].nunique()} rooms\n")
    print(summarise(readings).to_string())
    os.makedirs(ARTIFACTS, exist_ok=True)
    draw(readings, f"{ARTIFACTS}/heating.png")


if __name__ == "__main__":
    main()
