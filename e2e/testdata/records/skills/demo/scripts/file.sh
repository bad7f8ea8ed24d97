#!/bin/bash
echo made >/out/made.txt
